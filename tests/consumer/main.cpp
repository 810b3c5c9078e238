// A program that knows tenfold by its installed package alone: saves, opens, loads, verifies and
// converts, and fails if anything differs from what was saved.

#include <tenfold/tenfold.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#if TENFOLD_VERSION_NUMBER < 100
#error "the version macros are for the preprocessor"
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

void check_errors(const std::filesystem::path& path) {
  try {
    tenfold::open(path).at("layer", "wieght");
    expect(false, "an unknown key throws");
  } catch (const tenfold::Error& error) {
    expect(error.code() == tenfold::ErrorCode::key_not_found,
           std::string("throws: ") + error.what());
  }
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
