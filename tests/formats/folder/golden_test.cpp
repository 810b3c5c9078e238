// The folders tests/data/memmap/ok-*, written by tensordict (see generate.py there).

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "core/notes/notes.hpp"
#include "formats/format.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {

using namespace detail::formats;
namespace {

namespace fs = std::filesystem;

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// Returns the bytes of each file by its relative path. For a folder, the path ends in "/", and the
/// bytes are empty.
std::map<std::string, std::string> files_below(const fs::path& root) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = entry.path().lexically_relative(root).string();
    if (entry.is_directory()) {
      files[name + "/"];
    } else {
      files[name] = read_bytes(entry.path());
    }
  }
  return files;
}

const Value& member(const Value& object, std::string_view key) {
  const Value* found = std::get<Value::Object>(object.data()).find(key);
  if (found == nullptr) throw std::runtime_error("expected.json lacks " + std::string(key));
  return *found;
}
const std::string& text(const Value& object, std::string_view key) {
  return std::get<std::string>(member(object, key).data());
}
const std::vector<Value>& list(const Value& value) {
  return std::get<Value::List>(value.data()).items;
}
Shape shape_of(const Value& value) {
  Shape shape;
  for (const Value& length : list(value)) shape.push_back(std::get<std::int64_t>(length.data()));
  return shape;
}

std::string hex_of(const Tensor& tensor) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (std::uint64_t i = 0; i < tensor.nbytes(); ++i) {
    const auto byte = std::to_integer<unsigned>(tensor.raw_data()[i]);
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

void expect_item(const TensorDict::Item& item, const Value& expected, const std::string& at);

void expect_leaf(const Leaf& leaf, const Value& expected, const std::string& at) {
  EXPECT_EQ(to_string(leaf.dtype()), text(expected, "dtype")) << at;
  EXPECT_EQ(hex_of(leaf.tensor()), text(expected, "hex")) << at;
  EXPECT_EQ(leaf.nbytes() * 2, text(expected, "hex").size()) << at;
  if (text(expected, "kind") == "tensor") {
    EXPECT_EQ(leaf.shape(), shape_of(member(expected, "shape"))) << at;
    EXPECT_FALSE(leaf.is_nested()) << at;
    return;
  }
  ASSERT_TRUE(leaf.is_nested()) << at;
  const auto& rows = list(member(expected, "sizes"));
  const Tensor sizes = leaf.sizes();
  ASSERT_EQ(sizes.shape()[0], static_cast<std::int64_t>(rows.size())) << at;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Tensor row = sizes.select(static_cast<std::int64_t>(i));
    const auto lengths = row.span<std::int64_t>();
    EXPECT_EQ(Shape(lengths.begin(), lengths.end()), shape_of(rows[i])) << at;
  }
}

void expect_node(const TensorDict& node, const Value& expected, const std::string& at) {
  EXPECT_EQ(to_string(node.kind()), text(expected, "kind")) << at;
  const NodeInfo& info = node.info();
  if (node.kind() == NodeKind::lazy_stack) {
    EXPECT_EQ(info.stack_dim, std::get<std::int64_t>(member(expected, "stack_dim").data())) << at;
    const Value& name = member(expected, "stack_dim_name");
    EXPECT_EQ(info.stack_dim_name.has_value(), !name.is_null()) << at;
    if (info.stack_dim_name) {
      EXPECT_EQ(Value(*info.stack_dim_name), name) << at;
    }
  } else {
    EXPECT_EQ(info.class_name, text(expected, "class")) << at;
    EXPECT_EQ(info.batch_size, shape_of(member(expected, "batch_size"))) << at;
    EXPECT_EQ(info.device, "cpu") << at;
    const auto& names = list(member(expected, "names"));
    ASSERT_EQ(info.names.size(), names.size()) << at;
    for (std::size_t i = 0; i < names.size(); ++i) {
      EXPECT_EQ(info.names[i] ? Value(*info.names[i]) : Value(), names[i]) << at;
    }
  }
  std::vector<std::string> keys;
  for (const Value& entry : list(member(expected, "entries"))) {
    keys.push_back(std::get<std::string>(list(entry)[0].data()));
  }
  ASSERT_EQ(node.keys(), keys) << at;
  for (const Value& entry : list(member(expected, "entries"))) {
    const std::string& key = std::get<std::string>(list(entry)[0].data());
    expect_item(node.get(key), list(entry)[1], at + "/" + key);
  }
}

void expect_item(const TensorDict::Item& item, const Value& expected, const std::string& at) {
  const std::string& kind = text(expected, "kind");
  if (kind == "tensor" || kind == "nested") {
    ASSERT_TRUE(std::holds_alternative<Leaf>(item)) << at;
    expect_leaf(std::get<Leaf>(item), expected, at);
  } else if (kind == "value" || kind == "stack") {
    ASSERT_TRUE(std::holds_alternative<NonTensor>(item)) << at;
    const auto& value = std::get<NonTensor>(item);
    EXPECT_EQ(value.is_stack, kind == "stack") << at;
    EXPECT_EQ(value.value, member(expected, "value")) << at << ": " << to_json(value.value);
  } else {
    ASSERT_TRUE(std::holds_alternative<TensorDict>(item)) << at;
    expect_node(std::get<TensorDict>(item), expected, at);
  }
}

struct Golden {
  fs::path path;
  friend std::ostream& operator<<(std::ostream& out, const Golden& golden) {
    return out << golden.path.filename().string();
  }
};

std::vector<Golden> goldens() {
  std::vector<Golden> found;
  for (const auto& entry : fs::directory_iterator(TENFOLD_TEST_DATA "/memmap")) {
    if (entry.path().filename().string().starts_with("ok-")) found.push_back({entry.path()});
  }
  std::sort(found.begin(), found.end(),
            [](const Golden& a, const Golden& b) { return a.path < b.path; });
  return found;
}

class MemmapGolden : public testing::TestWithParam<Golden> {
 protected:
  MemmapGolden() {
    const fs::path file = GetParam().path / "expected.json";
    expected_ = from_json(read_bytes(file), file.string());
    path_ = GetParam().path / "tree";
  }

  Value expected_;
  fs::path path_;
};

TEST_P(MemmapGolden, ReadsTheOriginalTree) {
  ASSERT_TRUE(folder::kFormat.probe(path_));
  for (const Mode mode : {Mode::read, Mode::copy_on_write}) {
    expect_node(folder::kFormat.open(path_, {mode}), member(expected_, "tree"), "");
  }
}

TEST_P(MemmapGolden, WritesTheSameBytes) {
  const TensorDict tree = folder::kFormat.open(path_, {});
  const test::TemporaryFolder folder;
  WriteRequest request;
  request.durable = request.checksums = request.notes = false;
  request.zeros = std::get<bool>(member(expected_, "like").data());
  folder::kFormat.write(tree, folder / "again", request);
  if (std::get<bool>(member(expected_, "rewrite").data())) {
    EXPECT_EQ(files_below(folder / "again"), files_below(path_));
  }
  expect_node(folder::kFormat.open(folder / "again", {}), member(expected_, "tree"), "");
}

TEST_P(MemmapGolden, SavesWithoutNotesAndVerifies) {
  const test::TemporaryFolder folder;
  folder::kFormat.write(folder::kFormat.open(path_, {}), folder / "saved", {});
  EXPECT_FALSE(fs::exists(folder / "saved/%notes.json"));
  const VerifyReport report = folder::kFormat.verify(folder / "saved", {});
  EXPECT_TRUE(report.ok()) << report.problems[0].path << ": " << report.problems[0].part << ": "
                           << report.problems[0].what;
  EXPECT_GT(report.num_checksums, 0U);
  expect_node(folder::kFormat.open(folder / "saved", {}), member(expected_, "tree"), "");
}

TEST_P(MemmapGolden, VerifiesWithoutChecksums) {
  const VerifyReport report = folder::kFormat.verify(path_, {});
  EXPECT_TRUE(report.ok()) << report.problems[0].path << ": " << report.problems[0].what;
  EXPECT_EQ(report.num_checksums, 0U);
}

/// tests/data/tdz/generate.py packed the folder with tensordict: once stored, once deflated.
TEST_P(MemmapGolden, ReadsArchivesOfTensordict) {
  const std::string name = GetParam().path.filename().string();
  const fs::path stored = fs::path(TENFOLD_TEST_DATA "/tdz") / (name + ".tdz");
  const fs::path deflated = fs::path(TENFOLD_TEST_DATA "/tdz") / (name + "-deflate.tdz");
  constexpr std::ptrdiff_t kMaxPacked = 100;  // MAX_FILES in generate.py
  const fs::recursive_directory_iterator entries(path_);
  if (std::distance(begin(entries), end(entries)) > kMaxPacked) {
    GTEST_SKIP() << "a folder of too many files to pack";
  }
  for (const fs::path& archive : {stored, deflated}) {
    ASSERT_TRUE(folder::kArchiveFormat.probe(archive)) << archive;
    for (const Mode mode : {Mode::read, Mode::copy_on_write}) {
      expect_node(folder::kArchiveFormat.open(archive, {mode}), member(expected_, "tree"), "");
    }
    const VerifyReport report = folder::kArchiveFormat.verify(archive, {});
    EXPECT_TRUE(report.ok()) << report.problems[0].path << ": " << report.problems[0].what;
  }
}

TEST_P(MemmapGolden, SavesAnArchiveAndVerifies) {
  const test::TemporaryFolder folder;
  folder::kArchiveFormat.write(folder::kFormat.open(path_, {}), folder / "saved.tdz", {});
  const VerifyReport report = folder::kArchiveFormat.verify(folder / "saved.tdz", {});
  EXPECT_TRUE(report.ok()) << report.problems[0].path << ": " << report.problems[0].what;
  EXPECT_GT(report.num_checksums, 0U);
  expect_node(folder::kArchiveFormat.open(folder / "saved.tdz", {}), member(expected_, "tree"), "");
}

INSTANTIATE_TEST_SUITE_P(Folders, MemmapGolden, testing::ValuesIn(goldens()),
                         [](const auto& golden) {
                           std::string name = golden.param.path.filename().string().substr(3);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tenfold
