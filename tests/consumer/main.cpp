// A program that uses only the installed package: saves, opens, loads, verifies and converts, and
// fails if anything differs from what was saved.

#include <tenfold/tenfold.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#if TENFOLD_VERSION_NUMBER < 100
#error "TENFOLD_VERSION_NUMBER must be usable in #if, and at least 100"
#endif

namespace {

int failures = 0;

void expect(bool holds, const std::string& what) {
  std::cout << (holds ? "ok      " : "FAILED  ") << what << '\n';
  if (!holds) ++failures;
}

bool same(const tenfold::Tensor& a, const tenfold::Tensor& b) {
  const auto x = a.span<float>();
  const auto y = b.span<float>();
  return a.shape() == b.shape() && std::equal(x.begin(), x.end(), y.begin(), y.end());
}

tenfold::Tensor weight() {
  std::vector<float> values(12);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.5F * static_cast<float>(i);
  return tenfold::Tensor::from(std::span<const float>(values), {3, 4});
}

tenfold::TensorDict model() {
  tenfold::TensorDict layer(tenfold::NodeInfo{.kind = tenfold::NodeKind::dict});
  layer.set("weight", weight());
  tenfold::TensorDict tree;
  tree.set("layer", layer);
  tree.set("step", tenfold::Value(7));
  return tree;
}

void check_format(const std::filesystem::path& path, const std::string& format) {
  tenfold::save(model(), path);
  expect(tenfold::probe(path) == format, format + ": probe");
  const tenfold::TensorDict opened = tenfold::open(path);
  expect(same(opened.at("layer", "weight"), weight()), format + ": open");
  expect(opened.value("step") == tenfold::Value(7), format + ": JSON value");
  expect(same(tenfold::load(path, {.keys = {{"layer"}}}).at("layer", "weight"), weight()),
         format + ": load of one key");
  expect(tenfold::verify(path).ok(), format + ": verify");
  const tenfold::TensorDict target = model();
  target.at("layer", "weight").mutable_data<float>()[0] = -1;
  expect(tenfold::load_into(target, path).ok() && same(target.at("layer", "weight"), weight()),
         format + ": load_into");
  expect(
      tenfold::statistics(std::get<tenfold::Leaf>(opened.get(tenfold::KeyPath{"layer", "weight"})))
              .max == 5.5,
      format + ": statistics");
}

// A monitor that cancels the call.
class Stop final : public tenfold::Monitor {
 public:
  void report(std::uint64_t /*done*/, std::uint64_t /*total*/, std::string_view /*what*/) override {
  }
  bool stop() override { return true; }
};

// Checks that exceptions can be thrown across the boundary of a shared library in both directions.
void check_errors(const std::filesystem::path& path) {
  const tenfold::TensorDict tree = tenfold::open(path);
  try {
    tree.at("layer", "wieght");
    expect(false, "an unknown key throws");
  } catch (const tenfold::Error& error) {
    expect(error.code() == tenfold::ErrorCode::key_not_found,
           std::string("throws: ") + error.what());
  }
  try {
    tenfold::open(path / "nothing");
    expect(false, "a missing file throws");
  } catch (const std::runtime_error& error) {
    expect(dynamic_cast<const tenfold::Error*>(&error) != nullptr,
           "an error of the library is caught by its base class");
  }
  try {
    tree.for_each([](const std::string&, const tenfold::TensorDict::Item&) {
      throw tenfold::Error::io(EINTR, "here", "from the program");
    });
    expect(false, "a callback's error passes through the library");
  } catch (const tenfold::Error& error) {
    expect(error.system_errno() == EINTR && error.path() == "here",
           std::string("the program's error passes through the library: ") + error.what());
  }
  Stop stop;
  try {
    tenfold::verify(path, {.monitor = &stop});
    expect(false, "a monitor that stops the call makes it throw");
  } catch (const tenfold::Error& error) {
    expect(error.system_errno() == ECANCELED, "a monitor of the program stops the library");
  }
}

void check_trees(const std::filesystem::path& folder) {
  const tenfold::TensorDict tree = tenfold::load(folder / "tree");
  expect(tenfold::diff(folder / "tree", folder / "tree.safetensors").same(), "diff: same");
  expect(!tenfold::select(tree, {{"layer"}}).contains("step"), "select");
  expect(tenfold::Value::List{{1, 2}} == tenfold::Value::List{{1, 2}} &&
             tenfold::from_json("[1, 2.5]", "here").is<tenfold::Value::List>() &&
             tenfold::to_json(tenfold::Value("x")) == "\"x\"",
         "values");
  expect(tenfold::all_dtypes().size() == tenfold::kNumDTypes &&
             tenfold::dtype_from_name("bfloat16") == tenfold::DType::bfloat16 &&
             tenfold::to_string(tenfold::NodeKind::tuple) == "tuple",
         "names");
  expect(weight().select(1).numel() == 4 && weight().narrow(0, 2).shape()[0] == 2, "tensor views");
  expect(tenfold::Buffer::allocate(64).slice(32, 8).size_bytes() == 8, "buffers");
  tenfold::save(tree, folder / "tree.pt");
  expect(tenfold::scan(folder / "tree.pt").safe(), "scan");
  tenfold::memmap(tree, folder / "mapped");
  tenfold::pack_memmap(folder / "mapped", folder / "mapped.tdz");
  expect(same(tenfold::open(folder / "mapped.tdz").at("layer", "weight"), weight()), "archive");
  expect(tenfold::set_warning_handler(nullptr) != nullptr &&
             tenfold::set_warning_handler(nullptr) == nullptr,
         "warning handler");
}

void check_datasets(const std::filesystem::path& folder) {
  tenfold::Column column;
  column.path = {"x"};
  tenfold::Schema schema({column});
  tenfold::Dataset rows = tenfold::create(folder / "rows", schema);
  tenfold::TensorDict more(tenfold::NodeInfo{.batch_size = {12}});
  const tenfold::Tensor w = weight();
  more.set("x", tenfold::Tensor::from(w.span<float>()));
  expect(rows.append(more) == 12 && rows.range(3, 5).size() == 2, "data set: append, range");
  tenfold::BatchLoader loader(rows, {.batch_size = 5, .shuffle = true});
  std::int64_t seen = 0;
  for (const tenfold::Batch& batch : loader) seen += batch.at("x").numel();
  expect(seen == 12, "batches");
  std::size_t windows = 0;
  for (auto& window : tenfold::accumulate(loader, 2)) windows += window.size() != 0 ? 1 : 0;
  expect(windows == 2, "windows of batches");
  const tenfold::Permutation order(12, 7);
  expect(order[0] >= 0 && order[0] < 12, "permutation");

  const std::vector<std::int64_t> keys = {5, 7};
  tenfold::MappedDictBuilder builder(folder / "dict", tenfold::DictKeyType::int64, schema);
  builder.append(std::span<const std::int64_t>(keys), rows.rows(0, 2));
  builder.commit();
  const tenfold::Tensor value = tenfold::MappedDict(folder / "dict").at(7).at("x");
  expect(value.span<float>()[0] == 0.5F, "dictionary");

  const std::vector<std::int64_t> at = {0, 2};
  const std::vector<float> ones = {1, 2};
  tenfold::SparseBuilder sparse(3, 3, tenfold::DType::float32);
  const tenfold::Tensor index = tenfold::Tensor::from(std::span<const std::int64_t>(at));
  sparse.add(index, index, tenfold::Tensor::from(std::span<const float>(ones)));
  expect(sparse.finish().nnz() == 2, "sparse matrix");
}

}  // namespace

int main() {
  expect(tenfold::version() == TENFOLD_VERSION_STRING, "headers and library are of one version");
  const std::filesystem::path folder = std::filesystem::current_path() / "tenfold-consumer-scratch";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  try {
    check_format(folder / "tree", "memmap");
    check_format(folder / "tree.safetensors", "safetensors");
    check_errors(folder / "tree");
    check_trees(folder);
    check_datasets(folder);
    const auto report = tenfold::convert(folder / "tree", folder / "converted.safetensors");
    expect(report.num_leaves == 1 && report.num_bytes == 48, "convert: report");
    expect(same(tenfold::load(folder / "converted.safetensors").at("layer", "weight"), weight()),
           "convert: same values");
  } catch (const std::exception& error) {
    expect(false, std::string("no exception: ") + error.what());
  }
  std::filesystem::remove_all(folder);
  return failures == 0 ? 0 : 1;
}
