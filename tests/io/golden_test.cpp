// The golden files in tests/data/golden/<version> were written by that version. Every later version
// must open, verify and load them. expected.json describes the expected content in the notation of
// tests/data/golden/golden.py. This test includes only public headers of the engine, so that
// internal changes of the engine do not affect the test.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include <tenfold/batch_loader.hpp>
#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/mapped_dict.hpp>
#include <tenfold/permutation.hpp>
#include <tenfold/sparse_matrix.hpp>
#include <tenfold/state_mapper.hpp>
#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

#include "support/sha256.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

namespace fs = std::filesystem;
using Items = std::vector<Value>;

const fs::path kData = fs::path(TENFOLD_TEST_DATA) / "golden";

// --- descriptions ---

Value list(Items items) { return Value::List{std::move(items)}; }
Value tagged(std::string_view tag, Value value) { return list({tag, std::move(value)}); }

std::string hex(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes) {
    digits += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
    digits += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
  }
  return digits;
}

Value shape_of(const Shape& shape) {
  Items lengths;
  for (const std::int64_t length : shape) lengths.emplace_back(length);
  return list(std::move(lengths));
}

std::string digest_of(const Tensor& tensor) {
  const Tensor whole = tensor.contiguous();
  return test::sha256({whole.raw_data(), static_cast<std::size_t>(whole.nbytes())}).substr(0, 16);
}

Value describe(const Tensor& tensor) {
  return list({"tensor", to_string(tensor.dtype()), shape_of(tensor.shape()), digest_of(tensor)});
}

Value describe(const Value& value);

Value described(const Items& items) {
  Items made;
  for (const Value& item : items) made.push_back(describe(item));
  return list(std::move(made));
}

/// Describes a key with the type that it has in Python. A key without a recorded type is a string.
Value describe_key(const std::string& key, bool int_keys, const TypedKeys& typed) {
  if (int_keys) return tagged("int", key);
  for (const auto& [text, value] : typed) {
    if (text == key) return describe(value);
  }
  return key;
}

Value describe_members(const Value::Object& object) {
  Items members;
  for (const auto& [key, value] : object.members) {
    members.push_back(
        list({describe_key(key, object.int_keys, object.typed_keys), describe(value)}));
  }
  return list(std::move(members));
}

Value describe(const Value::Special& special) {
  using Type = Value::Special::Type;
  const std::string tag = to_string(special.type);
  switch (special.type) {
    case Type::bytes:
    case Type::bytearray:
      return tagged(tag, hex(special.text));
    case Type::set:
    case Type::frozenset: {
      Items items;
      for (const Value& item : special.items) items.push_back(describe(item));
      std::sort(items.begin(), items.end(),
                [](const Value& a, const Value& b) { return to_json(a) < to_json(b); });
      return tagged(tag, list(std::move(items)));
    }
    case Type::counter:
      return tagged(tag, describe_members(*special.items.at(0).get_if<Value::Object>()));
    case Type::complex:
    case Type::size:
      return tagged(tag, described(special.items));
    default:
      return tagged(tag, special.text);
  }
}

Value describe(const Value& value) {
  if (const auto* number = value.get_if<std::int64_t>()) {
    return tagged("int", std::to_string(*number));
  }
  if (const auto* number = value.get_if<Value::BigInt>()) return tagged("int", number->digits);
  if (const auto* number = value.get_if<double>()) {
    auto bits = std::bit_cast<std::uint64_t>(*number);
    std::string digits;
    for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[bits >> shift & 15];
    return tagged("float", digits);
  }
  if (const auto* items = value.get_if<Value::List>()) {
    return tagged("list", described(items->items));
  }
  if (const auto* items = value.get_if<Value::Tuple>()) {
    return tagged("tuple", described(items->items));
  }
  if (const auto* object = value.get_if<Value::Object>()) {
    return tagged(object->ordered ? "ordered_dict" : "dict", describe_members(*object));
  }
  if (const auto* special = value.get_if<Value::Special>()) return describe(*special);
  return value;  // null, bool, str
}

Value describe(const Leaf& leaf) {
  if (leaf.is_nested()) {
    Items shapes;
    const Tensor sizes = leaf.sizes();
    for (std::int64_t i = 0; i < sizes.shape()[0]; ++i) {
      const Tensor row = sizes.select(i);
      const auto lengths = row.span<std::int64_t>();
      shapes.push_back(shape_of(Shape(lengths.begin(), lengths.end())));
    }
    return list(
        {"nested", to_string(leaf.dtype()), list(std::move(shapes)), digest_of(leaf.tensor())});
  }
  EXPECT_EQ(leaf.shape(), leaf.tensor().shape());
  return leaf.is_unbatched() ? tagged("unbatched", describe(leaf.tensor()))
                             : describe(leaf.tensor());
}

Value describe(const TensorDict& node);

Value describe(const TensorDict::Item& item) {
  if (const auto* leaf = std::get_if<Leaf>(&item)) return describe(*leaf);
  if (const auto* node = std::get_if<TensorDict>(&item)) return describe(*node);
  const auto& value = std::get<NonTensor>(item);
  return value.is_stack ? tagged("values", describe(value.value)) : describe(value.value);
}

Value text_or_null(const std::optional<std::string>& text) { return text ? Value(*text) : Value(); }

Value describe(const TensorDict& node) {
  const NodeInfo& info = node.info();
  Items items;
  Items members;
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    items.push_back(describe(item));
    members.push_back(list({describe_key(key, info.int_keys, info.typed_keys), items.back()}));
  });
  const bool is_named = std::any_of(info.names.begin(), info.names.end(),
                                    [](const auto& dimension) { return dimension.has_value(); });
  Value names;
  if (is_named) {
    Items found;
    for (const auto& dimension : info.names) found.push_back(text_or_null(dimension));
    names = list(std::move(found));
  }
  const std::string tag = to_string(info.kind);
  switch (info.kind) {
    case NodeKind::tensordict:
      return list({tag, shape_of(info.batch_size), names, list(std::move(members))});
    case NodeKind::tensorclass:
      return list(
          {tag, info.class_name, shape_of(info.batch_size), names, list(std::move(members))});
    case NodeKind::lazy_stack:
      return list({tag, info.stack_dim, text_or_null(info.stack_dim_name), list(std::move(items))});
    case NodeKind::sparse:
      return list({tag, info.layout, shape_of(info.dense_shape), list(std::move(members))});
    case NodeKind::list:
    case NodeKind::tuple:
      return tagged(tag, list(std::move(items)));
    default:
      return tagged(tag, list(std::move(members)));
  }
}

// --- expected.json ---

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const Value* find(const Value& object, std::string_view key) {
  return object.get_if<Value::Object>()->find(key);
}
const Value& member(const Value& object, std::string_view key) {
  const Value* found = find(object, key);
  if (found == nullptr) throw std::runtime_error("expected.json lacks " + std::string(key));
  return *found;
}
const Items& items_of(const Value& value) { return value.get_if<Value::List>()->items; }
const std::string& text(const Value& value) { return *value.get_if<std::string>(); }
std::int64_t integer(const Value& value) { return *value.get_if<std::int64_t>(); }
std::uint64_t seed_of(const Value& value) { return std::stoull(text(value)); }

/// Decodes the description of a key or of a state. Returns a scalar or a tuple.
Value plain(const Value& described) {
  const auto* parts = described.get_if<Value::List>();
  if (parts == nullptr) return described;
  const std::string& tag = text(parts->items.at(0));
  const Value& content = parts->items.at(1);
  if (tag == "int") return from_json(text(content), "an integer");
  if (tag == "float") return std::bit_cast<double>(std::stoull(text(content), nullptr, 16));
  if (tag != "tuple") throw std::runtime_error("no scalar: " + to_json(described));
  Value::Tuple tuple;
  for (const Value& item : items_of(content)) tuple.items.push_back(plain(item));
  return tuple;
}

std::vector<fs::path> versions() {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(kData)) {
    if (fs::exists(entry.path() / "expected.json")) found.push_back(entry.path().filename());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Returns the bytes and the modification time of each file and folder, by its relative path.
std::map<std::string, std::pair<std::string, fs::file_time_type>> files_below(
    const fs::path& root) {
  std::map<std::string, std::pair<std::string, fs::file_time_type>> files;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const bool is_file = entry.is_regular_file();
    files[entry.path().lexically_relative(root)] = {is_file ? text_of(entry.path()) : "",
                                                    entry.last_write_time()};
  }
  return files;
}

class Golden : public testing::TestWithParam<fs::path> {
 protected:
  const Items& entries(std::string_view part) const { return items_of(member(expected_, part)); }
  const Items& orders(std::string_view part) const {
    return items_of(member(member(expected_, "orders"), part));
  }

  Value expected_ = from_json(text_of(kData / GetParam() / "expected.json"), "expected.json");
};

/// Reads a write-protected copy of the golden files, which must be unchanged afterwards.
class GoldenFiles : public Golden {
 protected:
  GoldenFiles() {
    fs::copy(kData / GetParam(), files(), fs::copy_options::recursive);
    allow_writing(fs::perm_options::remove);
    before_ = files_below(files());
  }
  ~GoldenFiles() override {
    EXPECT_TRUE(before_ == files_below(files())) << "a file was changed by reading";
    allow_writing(fs::perm_options::add);
  }

  fs::path files() const { return folder_ / "files"; }
  fs::path path_of(const Value& entry) const { return files() / text(member(entry, "path")); }

 private:
  void allow_writing(fs::perm_options option) const {
    for (const auto& entry : fs::recursive_directory_iterator(files())) {
      fs::permissions(entry.path(), fs::perms::owner_write, option);
    }
  }

  test::TemporaryFolder folder_;
  std::map<std::string, std::pair<std::string, fs::file_time_type>> before_;
};

/// Returns true for a hierarchical state mapper in a JSON file, which only StateMapper can read.
bool is_hierarchy_text(const fs::path& path) {
  return path.extension() == ".json" && !path.string().ends_with(".index.json");
}

TEST_P(GoldenFiles, FilesVerify) {
  for (const char* part : {"trees", "datasets", "mapped_dicts", "sparse", "mappers"}) {
    for (const Value& entry : entries(part)) {
      const fs::path path = path_of(entry);
      if (is_hierarchy_text(path)) continue;
      const VerifyReport report = verify(path);
      EXPECT_TRUE(report.ok()) << path << ": " << report.problems[0].part << ": "
                               << report.problems[0].what;
      const Value* checksums = find(entry, "checksums");
      EXPECT_EQ(report.num_checksums > 0, checksums == nullptr) << path;
    }
  }
}

TEST_P(GoldenFiles, TreesLoadUnchanged) {
  for (const Value& entry : entries("trees")) {
    // expected.json describes a bare root as a dict whose key is the name of the file.
    const TensorDict tree = named_by_file(load(path_of(entry)));
    const Value& expected = member(entry, "tree");
    EXPECT_EQ(to_json(describe(tree)), to_json(expected)) << path_of(entry);
    for (const Mode mode : {Mode::read, Mode::copy_on_write}) {
      EXPECT_EQ(describe(named_by_file(open(path_of(entry), {mode}))), expected) << path_of(entry);
    }
    std::vector<const std::byte*> tied;
    if (const Value* paths = find(entry, "tied")) {
      for (const Value& path : items_of(*paths)) {
        KeyPath keys;
        for (const Value& key : items_of(path)) keys.push_back(text(key));
        tied.push_back(tree.tensor(keys).raw_data());
      }
      EXPECT_EQ(std::count(tied.begin(), tied.end(), tied[0]), std::ssize(tied)) << path_of(entry);
    }
  }
}

/// Describes a column in the notation of golden.py: as one tensor if `expected` is one, otherwise
/// row by row.
Value describe_column(const Batch& batch, const std::string& name, const Value& expected) {
  const std::string suffix = ".valid";
  const bool is_valid = name.ends_with(suffix);
  const BatchColumn& column =
      batch.column(is_valid ? name.substr(0, name.size() - suffix.size()) : name);
  if (is_valid) return describe(column.valid);
  if (text(items_of(expected)[0]) == "tensor") return describe(column.values);
  Items rows;
  const bool is_bytes = column.column.kind == ColumnKind::bytes;
  const auto item = [&](std::int64_t begin, std::int64_t end) {
    const auto* data = reinterpret_cast<const char*>(column.values.raw_data());
    const std::string bytes(data == nullptr ? "" : data + begin,
                            static_cast<std::size_t>(data == nullptr ? 0 : end - begin));
    return is_bytes ? tagged("bytes", hex(bytes)) : Value(bytes);
  };
  const auto ends = column.offsets.span<std::int64_t>();
  for (std::size_t row = 0; row + 1 < ends.size(); ++row) {
    if (column.column.is_text() && !column.column.ragged) {
      rows.push_back(item(ends[row], ends[row + 1]));
    } else if (column.column.is_text()) {
      const auto bytes = column.item_offsets.span<std::int64_t>();
      Items texts;
      for (auto i = static_cast<std::size_t>(ends[row]); std::cmp_less(i, ends[row + 1]); ++i) {
        texts.push_back(item(bytes[i], bytes[i + 1]));
      }
      rows.push_back(tagged("list", list(std::move(texts))));
    } else {
      rows.push_back(describe(column.values.narrow(ends[row], ends[row + 1])));
    }
  }
  return tagged("rows", list(std::move(rows)));
}

TEST_P(GoldenFiles, DataSetsReturnTheirRows) {
  for (const Value& entry : entries("datasets")) {
    const Dataset ds(path_of(entry));
    ASSERT_EQ(ds.size(), integer(member(entry, "rows"))) << path_of(entry);
    const Batch batch = ds.rows(0, ds.size());
    for (const Value& column : items_of(member(entry, "columns"))) {
      const std::string& name = text(items_of(column)[0]);
      const Value& expected = items_of(column)[1];
      EXPECT_EQ(to_json(describe_column(batch, name, expected)), to_json(expected))
          << path_of(entry) << ": " << name;
    }
    if (const Value* capacity = find(entry, "capacity")) {
      EXPECT_EQ(ds.capacity(), integer(*capacity));
      EXPECT_EQ(ds.cursor(), integer(member(entry, "cursor")));
    }
  }
}

/// Describes the value of one key of a MappedDict as Python returns it: a tensor, a scalar, a
/// string, bytes, or a dict of columns.
Value describe_value(const Batch& batch, DictValueForm form) {
  const auto described = [&](const BatchColumn& column) -> Value {
    const Tensor& values = column.values;
    if (column.column.is_text()) {
      const std::string bytes(batch.text(column.column.name(), 0));
      return column.column.kind == ColumnKind::bytes ? tagged("bytes", hex(bytes)) : Value(bytes);
    }
    if (form != DictValueForm::scalar) {
      return describe(column.column.ragged ? values : values.select(0));
    }
    switch (values.dtype()) {
      case DType::bool_:
        return *values.data<bool>();
      case DType::int64:
        return describe(Value(*values.data<std::int64_t>()));
      default:
        return describe(Value(*values.data<double>()));
    }
  };
  if (form != DictValueForm::columns) return described(batch.columns().at(0));
  Items members;
  for (const BatchColumn& column : batch.columns()) {
    members.push_back(list({column.column.name(), described(column)}));
  }
  return tagged("dict", list(std::move(members)));
}

TEST_P(GoldenFiles, DictionariesReturnTheirValues) {
  for (const Value& entry : entries("mapped_dicts")) {
    const MappedDict dict(path_of(entry));
    const Items& pairs = items_of(member(entry, "items"));
    ASSERT_EQ(dict.size(), std::ssize(pairs)) << path_of(entry);
    EXPECT_TRUE(dict.check().empty()) << path_of(entry);
    const auto key_text = [](const Value& key) {
      if (const auto* parts = key.get_if<Value::List>()) {
        std::string bytes;
        const std::string& digits = text(parts->items.at(1));
        for (std::size_t i = 0; i < digits.size(); i += 2) {
          bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
        }
        return bytes;
      }
      return text(key);
    };
    const bool is_int = dict.key_type() == DictKeyType::int64;
    for (const Value& pair : pairs) {
      const Value& key = items_of(pair)[0];
      const Batch found = is_int ? dict.at(integer(plain(key))) : dict.at(key_text(key));
      EXPECT_EQ(to_json(describe_value(found, dict.value_form())), to_json(items_of(pair)[1]))
          << path_of(entry) << ": " << to_json(key);
    }
    const Value& missing = member(entry, "missing");
    EXPECT_FALSE(is_int ? dict.contains(integer(plain(missing)))
                        : dict.contains(key_text(missing)));
  }
}

TEST_P(GoldenFiles, SparseMatricesReturnTheirRows) {
  for (const Value& entry : entries("sparse")) {
    const SparseMatrix matrix(path_of(entry));
    EXPECT_EQ(to_string(matrix.layout()), text(member(entry, "layout")));
    EXPECT_EQ(describe(matrix.tree()), member(entry, "stored")) << path_of(entry);
    std::vector<std::int64_t> rows(static_cast<std::size_t>(matrix.num_rows()));
    std::iota(rows.begin(), rows.end(), 0);
    EXPECT_EQ(describe(matrix.rows(rows).values), member(entry, "dense")) << path_of(entry);
    std::vector<std::int64_t> columns(static_cast<std::size_t>(matrix.num_cols()));
    std::iota(columns.begin(), columns.end(), 0);
    EXPECT_EQ(describe(matrix.cols(columns).values), member(entry, "dense")) << path_of(entry);
    matrix.check();
  }
}

TEST_P(GoldenFiles, StateMappersReturnTheSameValues) {
  for (const Value& entry : entries("mappers")) {
    const StateMapper mapper = StateMapper::open(path_of(entry));
    const bool is_stored =
        mapper.kind() == MapperKind::sparse || mapper.kind() == MapperKind::hierarchical;
    for (const Value& answer : items_of(member(entry, "answers"))) {
      const Value state = plain(items_of(answer)[0]);
      const Value& row = items_of(answer)[1];
      SCOPED_TRACE(path_of(entry).string() + ": " + to_json(state));
      if (!is_stored || to_json(state).find("net") != std::string::npos) {
        EXPECT_THROW(mapper.at(state), Error);  // a module computes the row, and is not stored
      } else if (row.is_null()) {
        EXPECT_THROW(mapper.at(state), Error);
      } else if (row.is<Value::List>() && text(items_of(row)[0]) == "tensor") {
        EXPECT_EQ(describe(mapper.at(state)), row);
      } else {
        EXPECT_EQ(describe(mapper.value(state)), row);
      }
    }
  }
}

// --- orders ---

Value describe_order(const std::vector<std::int64_t>& order) {
  Items first;
  for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 12); ++i) {
    first.emplace_back(order[i]);
  }
  const std::string digest = test::sha256(std::as_bytes(std::span(order))).substr(0, 16);
  return list({static_cast<std::int64_t>(order.size()), list(std::move(first)), digest});
}

Dataset counted(std::int64_t n, std::int64_t start = 0) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), start);
  NodeInfo info;
  info.batch_size = {n};
  TensorDict td(info);
  td.set("i", Tensor::from<std::int64_t>(numbers));
  return Dataset(td);
}

Value order_of(const Dataset& rows) {
  const Batch batch = rows.rows(0, rows.size());
  const auto numbers = batch.at("i").span<std::int64_t>();
  return describe_order({numbers.begin(), numbers.end()});
}

TEST_P(Golden, ShuffledOrdersNeverChange) {
  for (const Value& entry : orders("permutation")) {
    const Items& parts = items_of(entry);
    const std::int64_t n = integer(parts[0]);
    const auto epoch = static_cast<std::uint64_t>(integer(parts[2]));
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    Permutation(n, seed_of(parts[1]), epoch).fill(0, order);
    EXPECT_EQ(describe_order(order), parts[3]) << to_json(entry);
  }
}

TEST_P(Golden, RowsOfViewsNeverChange) {
  const auto orders_of = [](const std::vector<Dataset>& views) {
    Items made;
    for (const Dataset& view : views) made.push_back(order_of(view));
    return list(std::move(made));
  };
  for (const Value& entry : orders("split")) {
    const Items& parts = items_of(entry);
    const std::int64_t n = integer(parts[0]);
    std::optional<std::uint64_t> seed;
    if (!parts[1].is_null()) seed = static_cast<std::uint64_t>(integer(parts[1]));
    EXPECT_EQ(orders_of(counted(n).split({n * 6 / 10, n - n * 6 / 10}, seed)), parts[2]);
  }
  for (const Value& entry : orders("shard")) {
    const Items& parts = items_of(entry);
    std::vector<Dataset> views;
    for (std::int64_t rank = 0; rank < integer(parts[1]); ++rank) {
      views.push_back(counted(integer(parts[0])).shard(rank, integer(parts[1])));
    }
    EXPECT_EQ(orders_of(views), parts[2]);
  }
  for (const Value& entry : orders("mix")) {
    const Items& parts = items_of(entry);
    std::vector<Dataset> sources;
    std::vector<double> weights;
    for (const Value& weight : items_of(parts[0])) {
      sources.push_back(counted(50, 1000 * std::ssize(sources)));
      weights.push_back(*weight.get_if<double>());
    }
    EXPECT_EQ(order_of(Dataset::mix(sources, weights)), parts[1]);
  }
}

std::vector<std::int64_t> handed_out(BatchLoader& loader) {
  std::vector<std::int64_t> order;
  for (const Batch& batch : loader) {
    const auto numbers = batch.at("i").span<std::int64_t>();
    order.insert(order.end(), numbers.begin(), numbers.end());
  }
  return order;
}

TEST_P(Golden, LoadersContinueFromAnOldState) {
  for (const Value& entry : orders("loader")) {
    const Items& parts = items_of(entry);
    BatchLoaderOptions options;
    for (const auto& [key, value] : parts[1].get_if<Value::Object>()->members) {
      if (key == "batch_size") options.batch_size = integer(value);
      if (key == "shuffle") options.shuffle = *value.get_if<bool>();
      if (key == "seed") options.seed = seed_of(value);
      if (key == "drop_last") options.drop_last = *value.get_if<bool>();
      if (key == "rank") options.rank = integer(value);
      if (key == "world_size") options.world_size = integer(value);
      if (key == "shuffle_block") options.shuffle_block = integer(value);
    }
    BatchLoader loader(counted(integer(parts[0])), options);
    const std::vector<std::int64_t> first = handed_out(loader);
    EXPECT_EQ(describe_order(first), parts[4]) << to_json(entry);
    EXPECT_EQ(describe_order(handed_out(loader)), parts[5]) << to_json(entry);

    BatchLoader resumed(counted(integer(parts[0])), options);
    const Value& state = parts[3];
    resumed.load_state_dict("{\"seed\": " + text(member(state, "seed")) +
                            ", \"epoch\": " + to_json(member(state, "epoch")) +
                            ", \"position\": " + to_json(member(state, "position")) + "}");
    const std::vector<std::int64_t> rest = handed_out(resumed);
    ASSERT_LT(rest.size(), first.size());
    EXPECT_TRUE(std::equal(rest.rbegin(), rest.rend(), first.rbegin())) << to_json(entry);
  }
}

std::string name_of(const testing::TestParamInfo<fs::path>& version) {
  std::string name = "v" + version.param.string();
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Versions, Golden, testing::ValuesIn(versions()), name_of);
INSTANTIATE_TEST_SUITE_P(Versions, GoldenFiles, testing::ValuesIn(versions()), name_of);

}  // namespace
}  // namespace tenfold
