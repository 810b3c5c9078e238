#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"

// With the option verify, load() checks the checksums of the loaded entries. It does not report
// damage of other entries, unless a snapshot packs them into the same file as a loaded entry.
// load() refuses sparse tensors with invalid indices, with and without the option.

namespace tenfold {
namespace {

namespace fs = std::filesystem;
using test::counting;
using test::node_of;
using test::thrown_by;
using testing::HasSubstr;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Changes the last byte of `tensor` in the first file that contains its bytes. Searches `path`,
/// then the folder `path` or, if `path` is a file, the folder that contains it.
void damage(const fs::path& path, const Tensor& tensor) {
  std::vector<fs::path> files = {path};
  // The shards are in the folder of their index.
  const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
  for (const auto& entry : fs::recursive_directory_iterator(folder)) files.push_back(entry.path());
  const std::string bytes = test::bytes_of(tensor);
  for (const fs::path& file : files) {
    if (!fs::is_regular_file(file)) continue;
    const std::size_t at = text_of(file).find(bytes);
    if (at == std::string::npos) continue;
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(at + bytes.size() - 1));
    stream.put(static_cast<char>(bytes.back() ^ 1));
    return;
  }
  FAIL() << "no file holds the tensor";
}

struct Form {
  std::string label;
  std::string file_name;
  std::string format;
};

void PrintTo(const Form& form, std::ostream* out) { *out << form.file_name; }

class LoadVerified : public testing::TestWithParam<Form> {
 protected:
  LoadVerified() {
    TensorDict tree = node_of(NodeKind::dict);
    tree.set("good", counting({300}, 5000));
    tree.set("damaged", damaged_);
    tree.set("better", counting({300}, 7000));
    path_ = save(tree, folder_ / GetParam().file_name, {.format = GetParam().format});
  }

  test::Thrown loading(Keys keys) const {
    LoadOptions options;
    options.verify = true;
    options.keys = std::move(keys);
    return thrown_by([&] { load(path_, options); });
  }

  test::TemporaryFolder folder_;
  Tensor damaged_ = counting({300}, 6000);
  Path path_;
};

TEST_P(LoadVerified, ChecksTheLoadedParts) {
  EXPECT_EQ(loading({}).message, "nothing was thrown");
  damage(path_, damaged_);
  EXPECT_EQ(loading({}).code, ErrorCode::corrupt);
  EXPECT_EQ(loading({"damaged"}).code, ErrorCode::corrupt);
  EXPECT_EQ(loading({"*d"}).code, ErrorCode::corrupt);
}

TEST_P(LoadVerified, DamageOfOtherPartsIsIgnored) {
  damage(path_, damaged_);
  EXPECT_EQ(loading({"good"}).message, "nothing was thrown");
  EXPECT_EQ(loading({"good", "better"}).message, "nothing was thrown");
}

INSTANTIATE_TEST_SUITE_P(Formats, LoadVerified,
                         testing::Values(Form{"Folder", "m", ""}, Form{"Archive", "m.tdz", ""},
                                         Form{"Safetensors", "m.safetensors", ""},
                                         Form{"Shards", "m.safetensors.index.json", ""},
                                         Form{"Torch", "m.pt", ""}, Form{"Npz", "m.npz", ""},
                                         Form{"Consolidated", "m.td", "consolidated"}),
                         [](const auto& form) { return form.param.label; });

// A snapshot packs tensors below slab_bytes into one file. load() checks this whole file if it
// loads one of these tensors.
TEST(LoadVerifiedSnapshot, ChecksTheFilesOfTheLoadedParts) {
  const Tensor large = counting({300'000});
  TensorDict state = node_of(NodeKind::dict);
  state.set("good", counting({300}, 5000));
  state.set("large", large);
  TensorDict tree = node_of(NodeKind::dict);
  tree.set("state", state);
  for (const bool is_packed : {true, false}) {
    const test::TemporaryFolder folder;
    save_snapshot(tree, folder / "s", {.slab_bytes = is_packed ? 10'000'000U : 10'000U});
    const auto loading = [&](const char* key) {
      LoadOptions options;
      options.verify = true;
      options.keys = {{"state", key}};
      return thrown_by([&] { load(folder / "s", options); });
    };
    EXPECT_EQ(loading("good").message, "nothing was thrown");
    damage(folder / "s", large);
    EXPECT_EQ(loading("large").code, ErrorCode::corrupt);
    EXPECT_EQ(loading("good").message == "nothing was thrown", !is_packed);
  }
}

TensorDict sparse_node(std::vector<std::int64_t> indices) {
  TensorDict node = node_of(NodeKind::sparse);
  node.info().layout = "sparse_coo";
  node.info().dense_shape = {3};
  const auto count = static_cast<std::int64_t>(indices.size());
  node.set("indices", Tensor::from(std::span<const std::int64_t>(indices), {1, count}));
  node.set("values", counting({count}));
  return node;
}

TEST(Convert, RefusesSparseTensorsWithDecreasingOffsets) {
  const test::TemporaryFolder folder;
  TensorDict node = node_of(NodeKind::sparse);
  node.info().layout = "sparse_csr";
  node.info().dense_shape = {3, 4};
  node.set("crow_indices", Tensor::from<std::int64_t>(std::vector<std::int64_t>{0, 2, 1, 2}, {4}));
  node.set("col_indices", Tensor::from<std::int64_t>(std::vector<std::int64_t>{0, 1}, {2}));
  node.set("values", counting({2}));
  TensorDict tree = node_of(NodeKind::dict);
  tree.set("s", node);
  const Path path = save(tree, folder / "csr");
  const test::Thrown thrown = thrown_by([&] { convert(path, folder / "to.pt"); });
  EXPECT_EQ(thrown.code, ErrorCode::corrupt);
  EXPECT_EQ(thrown.message, path.string() +
                                ": key \"s\": sparse tensor: crow_indices: expected "
                                "nondecreasing numbers up to 2, found 1");
}

class SparseLeaves : public testing::TestWithParam<const char*> {
 protected:
  Path saved(std::vector<std::int64_t> indices) {
    TensorDict below = node_of(NodeKind::dict);
    below.set("s", sparse_node(std::move(indices)));
    TensorDict tree = node_of(NodeKind::dict);
    tree.set("a", below);
    tree.set("x", counting({2}));
    const bool is_consolidated = std::string(GetParam()) == "m.td";
    return save(tree, folder_ / GetParam(), {.format = is_consolidated ? "consolidated" : ""});
  }

  test::TemporaryFolder folder_;
};

TEST_P(SparseLeaves, AreLoadedIfTheIndicesAreInRange) {
  const Path path = saved({0, 2});
  EXPECT_EQ(load(path)["a"]["s"].kind(), NodeKind::sparse);
  EXPECT_TRUE(verify(path).ok());
}

TEST_P(SparseLeaves, AreRefusedByKeyIfAnIndexIsOutOfRange) {
  const Path path = saved({0, 3});
  const test::Thrown thrown = thrown_by([&] { load(path); });
  EXPECT_EQ(thrown.code, ErrorCode::corrupt);
  EXPECT_THAT(thrown.message,
              HasSubstr("key \"a.s\": sparse tensor: indices: expected 0 to 2, found 3"));
  const VerifyReport report = verify(path);
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_EQ(report.problems[0].part, "key \"a.s\": sparse tensor: indices");
  EXPECT_EQ(report.problems[0].what, "expected 0 to 2, found 3");
  EXPECT_EQ(report.problems[0].expected, "0 to 2");
  EXPECT_EQ(report.problems[0].found, "3");
  // The components of the invalid tensor and all other entries can be loaded separately.
  EXPECT_EQ(load(path, {.keys = {"a.s.indices"}})["a"]["s"].at("indices").shape()[1], 2);
  EXPECT_TRUE(load(path, {.keys = {"x"}}).contains("x"));
}

TEST_P(SparseLeaves, AreNotConvertedIfAnIndexIsOutOfRange) {
  const Path path = saved({0, 3});
  for (const char* name : {"to.pt", "to.tdz", "to"}) {
    const Path target = folder_ / name;
    const test::Thrown thrown = thrown_by([&] { convert(path, target); });
    EXPECT_EQ(thrown.code, ErrorCode::corrupt) << name;
    EXPECT_EQ(thrown.message, path.string() +
                                  ": key \"a.s\": sparse tensor: indices: expected 0 "
                                  "to 2, found 3")
        << name;
    EXPECT_FALSE(std::filesystem::exists(target)) << name;
  }
  EXPECT_EQ(convert(path, folder_ / "x.pt", {.exclude = {"a"}}).num_leaves, 1U);
}

INSTANTIATE_TEST_SUITE_P(Formats, SparseLeaves, testing::Values("m", "m.pt", "m.tdz", "m.td"),
                         [](const auto& form) {
                           const std::string suffix = Path(form.param).extension().string();
                           return suffix.empty() ? "folder" : suffix.substr(1);
                         });

TEST(Load, WithoutAliasesOverlappingTensorsHaveTheirOwnMemory) {
  const Tensor all = counting({6});
  TensorDict tree = node_of(NodeKind::dict);
  tree.set("begin", all.narrow(0, 4));
  tree.set("end", all.narrow(2, 6));
  tree.set("all", all);
  tree.set("columns", Tensor(DType::float32, {3, 2}, Shape{1, 3}, all.buffer(), 0));
  tree.set("none", Tensor::zeros(DType::float32, {0}));
  const test::TemporaryFolder folder;
  save(tree, folder / "m.pt");
  const TensorDict loaded = load(folder / "m.pt", {.aliases = false});
  EXPECT_EQ(test::difference(loaded, tree), "");
  for (const char* key : {"begin", "end", "all", "columns"}) {
    *loaded.at(key).mutable_data<float>() = -1;
  }
  for (const char* key : {"begin", "end", "all", "columns"}) {
    const Tensor numbers = loaded.at(key).contiguous();
    EXPECT_EQ(std::ranges::count(numbers.span<float>(), -1.0F), 1) << key;
  }
}

}  // namespace
}  // namespace tenfold
