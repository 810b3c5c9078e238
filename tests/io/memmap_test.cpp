#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <tenfold/tenfold.hpp>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "io/memmap.hpp"
#include "io/sample_trees.hpp"
#include "os/fs/change_observer.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"
#include "support/watch_changes.hpp"

namespace tenfold {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using test::counting;
using test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;

TensorDict sample() {
  TensorDict below;
  below.info().batch_size = {4};
  below.set("c", counting({4, 2}));
  TensorDict tree;
  tree.info().batch_size = {4};
  tree.set("a", counting({4}));
  tree.set("b", std::move(below));
  tree.set("s", Value("text"));
  return tree;
}

/// A node of batch size [2] with a tensor of the numbers 0 and 1 under each of `keys`. Unless
/// `below` is empty, the child node `below` has the same tensors.
TensorDict two_rows(const std::vector<std::string>& keys, const std::string& below) {
  NodeInfo info;
  info.batch_size = {2};
  TensorDict rows(info);
  for (const std::string& key : keys) rows.set(key, counting({2}));
  if (below.empty()) return rows;
  rows.set(below, two_rows(keys, ""));
  return rows;
}

std::uint64_t inode_of(const fs::path& path) {
  struct stat status{};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_ino;
}

class Memmap : public testing::Test {
 protected:
  test::TemporaryFolder folder_;
  Path path_ = folder_ / "p";
};

TEST_F(Memmap, ReplacesAWholeFolder) {
  write_memmap(sample(), path_);
  TensorDict other;
  other.set("z", counting({2}));
  write_memmap(other, path_);
  EXPECT_EQ(open(path_).keys(), std::vector<std::string>{"z"});
  EXPECT_FALSE(fs::exists(path_ / "a.memmap"));
}

TEST_F(Memmap, KeepsMappedFilesAndRemovesUnreferencedOnes) {
  write_memmap(sample(), path_);
  const auto inode = inode_of(path_ / "a.memmap");
  TensorDict changed;
  changed.set("a", open_memmap(path_).at("a"));
  changed.set("new", counting({3}));
  write_memmap(changed, path_, {.already_mapped = {"a.memmap"}});
  EXPECT_EQ(inode_of(path_ / "a.memmap"), inode);
  EXPECT_THAT(open(path_).keys(), ElementsAre("a", "new"));
  EXPECT_FALSE(fs::exists(path_ / "b"));
  EXPECT_NO_THROW(write_memmap(changed, path_));  // no foreign files are left
}

TEST_F(Memmap, WritesInPlaceToExistingFiles) {
  write_memmap(sample(), path_);
  const TensorDict old = open_memmap(path_);
  const auto inode = inode_of(path_ / "a.memmap");
  std::ofstream(path_ / "mine") << "kept";
  TensorDict changed = sample();
  changed.set("a", counting({4}, 50));
  write_memmap(changed, path_, {.in_place = true});
  EXPECT_EQ(inode_of(path_ / "a.memmap"), inode);
  EXPECT_EQ(bytes_of(old.at("a")), bytes_of(counting({4}, 50)));
  EXPECT_TRUE(fs::exists(path_ / "mine"));
}

TEST_F(Memmap, WritingInPlaceSeparatesTensorsThatSharedAFile) {
  const Tensor shared = counting({4});
  TensorDict tree;
  tree.set("a", shared);
  tree.set("b", shared);
  save(tree, path_);
  ASSERT_TRUE(fs::equivalent(path_ / "a.memmap", path_ / "b.memmap"));
  TensorDict changed;
  changed.set("a", counting({4}, 10));
  changed.set("b", counting({4}, 50));
  write_memmap(changed, path_, {.in_place = true});
  EXPECT_EQ(test::difference(changed, open(path_)), "");
}

TEST_F(Memmap, ZerosInPlaceSeparateTensorsThatSharedAFileAndKeepTheirBytes) {
  const Tensor shared = counting({4});
  TensorDict tree;
  tree.set("a", shared);
  tree.set("b", shared);
  save(tree, path_);
  fs::resize_file(path_ / "a.memmap", 1 << 23);  // ends with a hole
  TensorDict made = memmap(tree, path_, {.zeros = true, .in_place = true});
  EXPECT_EQ(test::difference(tree, made), "");
  made.at("a").mutable_data<float>()[0] = 7;
  EXPECT_EQ(bytes_of(made.at("b")), bytes_of(shared));
  EXPECT_EQ(fs::file_size(path_ / "b.memmap"), 1U << 23);
}

TEST_F(Memmap, RefusesToUpdateADataSetToWhichRowsAreAdded) {
  Dataset growing = create(path_, Schema({{.path = {"x"}}}));
  const TensorDict rows = two_rows({"x"}, "");
  growing.append(rows);
  TensorDict other;
  other.set("x", counting({9}));
  EXPECT_EQ(thrown_by([&] { write_memmap(other, path_, {.already_mapped = {"x.memmap"}}); }).code,
            ErrorCode::unsupported);
  growing.append(rows);
  growing.close();
  EXPECT_EQ(Dataset(path_).size(), 4);
}

TEST_F(Memmap, RefusesToWriteInPlaceIfTheCommitFileIsDamaged) {
  write_memmap(sample(), path_);
  std::ofstream(path_ / "%commit") << "any";
  TensorDict other;
  other.set("z", TensorDict());
  EXPECT_EQ(thrown_by([&] { write_memmap(other, path_, {.in_place = true}); }).code,
            ErrorCode::corrupt);
  EXPECT_FALSE(fs::exists(path_ / "z"));
}

TEST_F(Memmap, NeverShrinksAFileInPlace) {
  TensorDict large;
  large.set("x", counting({100}));
  write_memmap(large, path_);
  TensorDict small;
  small.set("x", counting({3}));
  write_memmap(small, path_, {.in_place = true});
  EXPECT_EQ(fs::file_size(path_ / "x.memmap"), 400U);
  EXPECT_EQ(open(path_).at("x").shape(), Shape{3});
}

TEST_F(Memmap, RefusesToReplaceForeignFiles) {
  write_memmap(sample(), path_);
  for (const fs::path name : {"b/mine", "b/%clash-0.shape.memmap.old"}) {
    std::ofstream(path_ / name) << "kept";
    const auto thrown = thrown_by([&] { write_memmap(sample(), path_); });
    EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
    EXPECT_THAT(thrown.message, HasSubstr("\"" + name.string() + "\""));
    EXPECT_TRUE(fs::remove(path_ / name));
  }
}

TEST_F(Memmap, RefusesToReplaceAFolderThatIsNestedTooDeep) {
  const std::string meta = R"({"_type": "<class 'tensordict._td.TensorDict'>", "shape": [],)"
                           R"( "device": null, "a": {"type": "TensorDict"}})";
  Path deep = path_;
  for (int level = 0; level < 600; ++level, deep /= "a") {
    fs::create_directories(deep);
    std::ofstream(deep / "meta.json") << meta;
  }
  EXPECT_EQ(thrown_by([&] { write_memmap(sample(), path_); }).code, ErrorCode::unsupported);
}

TEST_F(Memmap, DoesNotWriteThroughSymlinks) {
  write_memmap(sample(), path_);
  fs::create_directory(folder_ / "outside");
  fs::remove_all(path_ / "b");
  fs::create_directory_symlink(folder_ / "outside", path_ / "b");
  EXPECT_EQ(thrown_by([&] { write_memmap(sample(), path_, {.in_place = true}); }).system_errno,
            ELOOP);
  EXPECT_TRUE(fs::is_empty(folder_ / "outside"));
}

TEST_F(Memmap, DoesNotWriteIntoAFifo) {
  write_memmap(sample(), path_);
  fs::remove(path_ / "a.memmap");
  ASSERT_EQ(::mkfifo((path_ / "a.memmap").c_str(), 0600), 0);
  const auto thrown = thrown_by([&] { write_memmap(sample(), path_, {.in_place = true}); });
  EXPECT_EQ(thrown.system_errno, EEXIST);
  EXPECT_THAT(thrown.message, HasSubstr("expected a file or nothing, found a special file"));
}

TEST_F(Memmap, RefusesExistingFilesOnRequest) {
  write_memmap(sample(), path_, {.existing_ok = false});
  EXPECT_EQ(thrown_by([&] { write_memmap(sample(), path_, {.existing_ok = false}); }).system_errno,
            EEXIST);
}

TEST_F(Memmap, KeepsKeysThatNeedNotesButNotSharedStorage) {
  const Tensor tied = counting({3});
  TensorDict tree;
  tree.set("shape", tied);
  tree.set("x", tied);
  write_memmap(tree, path_);
  EXPECT_EQ(bytes_of(open(path_).at("shape")), bytes_of(tied));
  EXPECT_NE(inode_of(path_ / "shape.memmap"), inode_of(path_ / "x.memmap"));
}

TEST_F(Memmap, KeepsUnencodedKeysThatAreTheEncodedNamesOfOthers) {
  TensorDict nodes;
  nodes.set("c d", TensorDict());
  nodes.set("c%20d", sample());
  TensorDict tree;
  tree.set("a%20b", counting({3}));
  tree.set("a b", counting({3}, 50));
  tree.set("n", nodes);
  write_memmap(tree, path_, {.robust_names = false});
  EXPECT_TRUE(fs::exists(path_ / "a b.memmap"));
  EXPECT_EQ(test::difference(tree, open(path_)), "");
}

TEST_F(Memmap, KeepsUnencodedKeysThatAreNamesOfTenfold) {
  Leaf unbatched(counting({3}));
  unbatched.mark_unbatched();
  TensorDict tree;
  tree.info().batch_size = {4};
  tree.set("%clash-0", counting({4}));
  for (const std::string key :
       {"%values", "%notes.json", "%checksums", "%commit", "%parts.json", "%clash-1"}) {
    tree.set(key, sample());
  }
  tree.set("unbatched", unbatched);
  write_memmap(tree, path_, {.robust_names = false});
  EXPECT_EQ(test::difference(tree, open(path_)), "");
}

TEST_F(Memmap, KeepsKeysThatAreTemporaryNames) {
  TensorDict tree = sample();
  for (const std::string key : {".a.tenfold-b", ".tdz-1", ".tdtmp-1"}) tree.set(key, counting({4}));
  for (const std::string key : {".meta.json.tenfold-0", ".meta.json.append.tmp", ".tdz-2"}) {
    TensorDict below;
    below.info().batch_size = {4};
    tree.set(key, below);
  }
  write_memmap(tree, path_);
  TensorDict rows = tree.narrow_rows(0, 1);
  append_memmap(path_, rows);
  add_memmap_leaf(path_, {.key = "q", .shape = {5}});
  pack_memmap(path_, folder_ / "p.tdz");
  for (const TensorDict& found : {open(path_), open(folder_ / "p.tdz")}) {
    EXPECT_EQ(found.at(".a.tenfold-b").shape(), Shape{5});
    EXPECT_EQ(found.at(".tdz-1").shape(), Shape{5});
    EXPECT_EQ(found[".meta.json.tenfold-0"].batch_size(), Shape{5});
    EXPECT_EQ(found[".tdz-2"].batch_size(), Shape{5});
  }
  EXPECT_EQ(thrown_by([&] { add_memmap_leaf(path_, {.key = ".tdz-3", .shape = {5}}); }).code,
            ErrorCode::invalid_argument);
}

TEST_F(Memmap, PacksEntriesOfTensordictWithTemporaryNames) {
  const TensorDict tree = two_rows({"x"}, "below");
  write_memmap(tree, path_);
  std::string meta = test::read_bytes(path_ / "meta.json");
  meta.replace(meta.find("below"), 5, ".tdz-0");
  meta.replace(meta.find("\"x\"") + 1, 1, ".tdz-x");
  test::write_bytes(path_ / "meta.json", meta);
  fs::rename(path_ / "below", path_ / ".tdz-0");
  fs::rename(path_ / "x.memmap", path_ / ".tdz-x.memmap");
  test::write_bytes(path_ / ".tdz-y.memmap", "leftover");
  fs::create_directory(path_ / ".tdz-z");
  pack_memmap(path_, folder_ / "p.tdz");
  EXPECT_EQ(test::difference(open(path_), open(folder_ / "p.tdz")), "");
  unpack_memmap(folder_ / "p.tdz", folder_ / "q");
  EXPECT_FALSE(fs::exists(folder_ / "q" / ".tdz-y.memmap"));
  write_memmap(tree, path_);  // nothing in the folder is foreign
}

TEST_F(Memmap, OpensWithoutALockSoThatTheFolderMayBeReplaced) {
  write_memmap(sample(), path_);
  const Tensor mapped = open_memmap(path_).at("a");
  write_memmap(sample(), path_);
  EXPECT_EQ(bytes_of(mapped), bytes_of(counting({4})));
  EXPECT_EQ(thrown_by([&] { open_memmap(folder_ / "nothing"); }).code, ErrorCode::file_not_found);
  EXPECT_EQ(thrown_by([&] { open_memmap(folder_.path()); }).code, ErrorCode::file_not_found);
}

TEST_F(Memmap, WritesATreeToOneFile) {
  std::ofstream(folder_ / "shared") << "";
  TensorDict tree = sample();
  tree.set("none", Tensor::zeros(DType::int8, {0, 3}));
  const TensorDict mapped = memmap_into(tree, folder_ / "shared");
  EXPECT_EQ(test::difference(tree, mapped), "");
  mapped.at("b", "c").mutable_data<float>()[0] = -1;
  std::ifstream file(folder_ / "shared", std::ios::binary);
  file.seekg(64);
  float found = 0;
  file.read(reinterpret_cast<char*>(&found), sizeof found);
  EXPECT_EQ(found, -1);
}

TEST_F(Memmap, OneFileOfEmptyTensorsIsEmpty) {
  std::ofstream(folder_ / "shared") << "longer";
  TensorDict tree;
  tree.set("none", Tensor::zeros(DType::int8, {0, 3}));
  EXPECT_EQ(test::difference(tree, memmap_into(tree, folder_ / "shared")), "");
  EXPECT_EQ(std::filesystem::file_size(folder_ / "shared"), 0U);
}

TEST_F(Memmap, AnUnbatchedNestedTensorStaysUnbatchedInOneFile) {
  std::ofstream(folder_ / "shared") << "";
  const std::vector<std::int64_t> sizes = {1, 2};
  Leaf nested = Leaf::nested(counting({3}), Tensor::from(sizes, {2, 1}));
  nested.mark_unbatched();
  TensorDict tree = sample();
  tree.set("nested", TensorDict::Item(nested));
  const TensorDict mapped = memmap_into(tree, folder_ / "shared");
  const auto made = std::get<Leaf>(mapped.get("nested"));
  EXPECT_TRUE(made.is_nested());
  EXPECT_TRUE(made.is_unbatched());
}

TEST_F(Memmap, AddsATensorAndANodeToASavedTree) {
  write_memmap(sample(), path_);
  const Path node = add_memmap_node(path_, "n/1", {4});
  EXPECT_EQ(node, path_ / "n%2F1");
  NewLeaf leaf;
  leaf.key = "new";
  leaf.dtype = DType::int16;
  leaf.shape = {4, 2};
  EXPECT_EQ(add_memmap_leaf(node, leaf), node / "new.memmap");
  const TensorDict tree = open(path_);
  EXPECT_THAT(tree.keys(), ElementsAre("a", "b", "s", "n/1"));
  EXPECT_EQ(tree.at("n/1", "new").shape(), (Shape{4, 2}));
}

TEST_F(Memmap, RefusesToAddExistingOrInvalidEntries) {
  write_memmap(sample(), path_);
  std::ofstream(path_ / "stray.memmap") << "mine";
  const auto code_of = [&](const std::string& key) {
    NewLeaf leaf;
    leaf.key = key;
    leaf.shape = {4};
    return thrown_by([&] { add_memmap_leaf(path_, leaf); });
  };
  EXPECT_EQ(code_of("a").code, ErrorCode::invalid_argument);
  EXPECT_EQ(code_of("shape").code, ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(std::string(300, 'k')).code, ErrorCode::invalid_argument);
  EXPECT_EQ(code_of("stray").system_errno, EEXIST);
  EXPECT_EQ(code_of("\xff").code, ErrorCode::invalid_argument);
  EXPECT_EQ(thrown_by([&] { add_memmap_node(path_, "\xff", {4}); }).code,
            ErrorCode::invalid_argument);
  EXPECT_THAT(thrown_by([&] { add_memmap_node(path_, "n", {-1}); }).message,
              HasSubstr("key \"n\": batch size: negative length in shape: expected at least 0"));
  EXPECT_THAT(thrown_by([&] { add_memmap_node(path_, "n", {std::int64_t{1} << 62, 4}); }).message,
              HasSubstr("key \"n\": batch size: shape too large"));
  const Tensor sizes = Tensor::zeros(DType::int64, {2});
  EXPECT_THAT(thrown_by([&] {
                add_memmap_leaf(path_, {.key = "n", .shape = {2}, .sizes = &sizes});
              }).message,
              HasSubstr("sizes: expected an int64 tensor of 2 dimensions"));
  const Tensor empty = Tensor::zeros(DType::int64, {2, 0});
  EXPECT_THAT(thrown_by([&] {
                add_memmap_leaf(path_, {.key = "n", .shape = {2, 0}, .sizes = &empty});
              }).message,
              HasSubstr("sizes: expected components of at least 1 dimension, found 0"));
  const Tensor ones = Tensor::from<std::int64_t>({1, 1}, {2, 1});
  EXPECT_THAT(thrown_by([&] {
                add_memmap_leaf(path_, {.key = "n", .shape = {3, 1}, .sizes = &ones});
              }).message,
              HasSubstr("shape: expected that of the sizes, [2, 1], found [3, 1]"));
  const std::vector<std::int64_t> lengths(4, std::int64_t{1} << 62);  // the sum is 2^64
  const Tensor huge = Tensor::from(std::span<const std::int64_t>(lengths), {4, 1});
  EXPECT_THAT(
      thrown_by([&] {
        add_memmap_leaf(path_,
                        {.key = "n", .dtype = DType::uint8, .shape = {4, 1}, .sizes = &huge});
      }).message,
      HasSubstr("key \"n\": sizes: expected lengths of at least 0, and fewer than 2^63 bytes"));
  EXPECT_FALSE(fs::exists(path_ / "\xff.memmap") || fs::exists(path_ / "\xff") ||
               fs::exists(path_ / "n"));
  EXPECT_THAT(open(path_).keys(), ElementsAre("a", "b", "s"));
}

TEST_F(Memmap, RefusesToAddATensorIfTheBatchSizeWouldFitNone) {
  write_memmap(sample(), path_);
  const Path node = add_memmap_node(path_, "n", {4});
  const auto thrown = thrown_by([&] { add_memmap_leaf(node, {.key = "x", .shape = {3}}); });
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
  EXPECT_THAT(thrown.message, HasSubstr("key \"x\": the shape does not fit: expected it to start "
                                        "with the batch_size [4], found [3]"));
  EXPECT_FALSE(fs::exists(node / "x.memmap"));
  const Tensor sizes = Tensor::zeros(DType::int64, {4, 1});
  add_memmap_leaf(node, {.key = "nested", .shape = {4, 1}, .sizes = &sizes});
  add_memmap_leaf(node, {.key = "x", .shape = {3}});
  EXPECT_THAT(open(path_).at("n", "x").shape(), ElementsAre(3));
}

TEST_F(Memmap, RefusesToAddTheKeyOfAnUnbatchedTensor) {
  TensorDict below = two_rows({"x"}, "");
  Leaf unbatched(counting({7}));
  unbatched.mark_unbatched();
  below.set("t", unbatched);
  TensorDict tree;
  tree.set("below", below);
  tree.set("t", counting({1}));
  save(tree, path_);
  EXPECT_EQ(thrown_by([&] { add_memmap_leaf(path_ / "below", {.key = "t", .shape = {2}}); }).code,
            ErrorCode::invalid_argument);
  EXPECT_EQ(test::difference(tree, open(path_)), "");
  add_memmap_leaf(path_ / "below", {.key = "u", .shape = {2}});
  EXPECT_THAT(open(path_)["below"].keys(), ElementsAre("x", "u", "t"));
}

TEST_F(Memmap, ManyThreadsMayAddEntries) {
  write_memmap(sample(), path_);
  std::vector<std::thread> threads;
  std::atomic<int> num_errors = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < 20; ++j) {
        const std::string key = "k" + std::to_string(20 * i + j);
        try {
          add_memmap_leaf(path_, {.key = key, .shape = {4}});
        } catch (const Error&) {
          ++num_errors;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_errors, 0);
  EXPECT_EQ(open(path_).size(), 163U);
}

TEST_F(Memmap, TheSizesOfANestedTensorOfTheEmptyKeyHaveTheNameOfTensordict) {
  TensorDict tree;
  tree.set("", Leaf::nested(counting({8}), Tensor::from<std::int64_t>({3, 5}, {2, 1})));
  write_memmap(tree, path_, {.robust_names = false});
  EXPECT_TRUE(fs::exists(path_ / ".memmap.shape.memmap"));
  EXPECT_EQ(bytes_of(std::get<Leaf>(open(path_).get("")).sizes()),
            bytes_of(Tensor::from<std::int64_t>({3, 5})));
  TensorDict empty;
  write_memmap(empty, folder_ / "q");
  const Tensor sizes = Tensor::from<std::int64_t>({3, 5}, {2, 1});
  add_memmap_leaf(folder_ / "q",
                  {.key = "", .shape = {2, 1}, .sizes = &sizes, .robust_names = false});
  EXPECT_EQ(std::get<Leaf>(open(folder_ / "q").get("")).nbytes(), 32U);
}

TEST_F(Memmap, PacksTensorsWithOtherNamesSoThatTheyCanBeMapped) {
  TensorDict tree;
  tree.set("x", Leaf::nested(counting({8}), Tensor::from<std::int64_t>({3, 5}, {2, 1})));
  tree.set("x.shape", counting({4}));
  save(tree, path_);
  ASSERT_TRUE(fs::exists(path_ / "%clash-0"));
  pack_memmap(path_, folder_ / "p.tdz");
  const TensorDict packed = open(folder_ / "p.tdz", {.mode = Mode::write_through});
  EXPECT_EQ(std::get<Leaf>(packed.get("x")).tensor().nbytes(), 32U);
}

TEST_F(Memmap, RefusesToAddAnEntryWhoseFileIsThatOfAnotherKey) {
  TensorDict tree;
  tree.set("x%20y", counting({4}));
  write_memmap(tree, path_, {.robust_names = false});
  NewLeaf leaf;
  leaf.key = "x y";
  leaf.shape = {4};
  leaf.existing_ok = true;
  for (const bool robust : {true, false}) {
    leaf.robust_names = robust;
    EXPECT_EQ(thrown_by([&] { add_memmap_leaf(path_, leaf); }).code, ErrorCode::invalid_argument);
  }
  EXPECT_EQ(thrown_by([&] { add_memmap_node(path_, "%values", {}, false); }).code,
            ErrorCode::invalid_argument);
  EXPECT_EQ(test::difference(tree, open(path_)), "");
  write_memmap(tree, path_);
  EXPECT_EQ(add_memmap_leaf(path_, leaf), path_ / "x y.memmap");
}

TEST_F(Memmap, ReplacesAValue) {
  write_memmap(sample(), path_);
  write_memmap_value(path_, "s", {Value("other")});
  EXPECT_EQ(open(path_).value("s"), Value("other"));
  EXPECT_EQ(thrown_by([&] {
              write_memmap_value(path_, "s", {.value = Value(1), .is_stack = true});
            }).message,
            "stack of JSON values: expected a list or tuple, found int");
  EXPECT_EQ(thrown_by([&] { write_memmap_value(path_, "b", {Value(1)}); }).code,
            ErrorCode::invalid_argument);
}

TEST_F(Memmap, ReplacesAValueWhoseFolderHasAnotherNameThanItsKey) {
  TensorDict node;
  node.set("t", counting({4}));  // its file is t.memmap: the value "t.memmap" gets folder %clash-0
  for (const char* key : {"a/b", "t.memmap"}) node.set(key, NonTensor{Value("text")});
  TensorDict tree;
  tree.set("n/m", node);
  save(tree, path_ / "encoded");
  for (const char* key : {"a/b", "t.memmap"}) {
    write_memmap_value(path_ / "encoded/n%2Fm", key, {Value("other")});
    EXPECT_EQ(open(path_ / "encoded").value({"n/m", key}), Value("other"));
  }
  TensorDict raw;
  raw.set("x y", NonTensor{Value("text")});
  write_memmap(raw, path_ / "raw", {.robust_names = false});
  ASSERT_TRUE(std::filesystem::exists(path_ / "raw/x y"));
  write_memmap_value(path_ / "raw", "x y", {Value("other")});
  EXPECT_EQ(open(path_ / "raw").value("x y"), Value("other"));
}

TEST_F(Memmap, RefusesAValueThatNeedsOtherNotes) {
  Value::Object numbered;
  numbered.int_keys = true;
  numbered.members.emplace_back("1", Value("a"));
  Value::Tuple pair;
  pair.items = {Value(1), Value(2)};
  TensorDict below;
  below.set("pair", NonTensor{Value(pair)});
  TensorDict tree;
  tree.set("below", below);
  tree.set("plain", NonTensor{Value("text")});
  tree.set("numbered", NonTensor{Value(numbered)});
  save(tree, path_);
  const auto refused = [&](const std::string& key, const Value& value) {
    return thrown_by([&] { write_memmap_value(path_, key, {value}); }).code;
  };
  EXPECT_EQ(refused("plain", Value(numbered)), ErrorCode::unsupported);
  const NonTensor list{Value(Value::List{pair.items})};
  fs::create_directory_symlink(path_ / "below", folder_ / "link");
  for (const char* node : {"below", "below/.", "below/../below", "../link"}) {
    EXPECT_EQ(thrown_by([&] { write_memmap_value(path_ / node, "pair", list); }).code,
              ErrorCode::unsupported)
        << node;
  }
  Value::Object texts;
  texts.members.emplace_back("2", Value("b"));
  EXPECT_EQ(refused("numbered", Value(texts)), ErrorCode::unsupported);
  EXPECT_EQ(test::difference(tree, open(path_)), "");
  pair.items = {Value(3), Value(4)};
  write_memmap_value(path_ / "below", "pair", {Value(pair)});
  EXPECT_EQ(open(path_).value({"below", "pair"}), Value(pair));
}

TEST_F(Memmap, FindsTheNotesOfANodeWithTheNameThatATensorclassUses) {
  Value::Tuple pair;
  pair.items = {Value(1), Value(2)};
  TensorDict node;
  node.set("pair", NonTensor{Value(pair)});
  TensorDict tree;
  tree.set("_tensordict", node);
  save(tree, path_);
  const NonTensor list{Value(Value::List{pair.items})};
  EXPECT_EQ(thrown_by([&] { write_memmap_value(path_ / "_tensordict", "pair", list); }).code,
            ErrorCode::unsupported);
  node.info().class_name = "mod.Point";
  node.info().kind = NodeKind::tensorclass;
  save(node, path_ / "point");
  EXPECT_EQ(thrown_by([&] { write_memmap_value(path_ / "point/_tensordict", "pair", list); }).code,
            ErrorCode::unsupported);
}

TEST_F(Memmap, AppendsRowsToEveryTensor) {
  TensorDict rows = sample();
  write_memmap(rows, path_);
  append_memmap(path_, rows.narrow_rows(1, 3));
  const TensorDict tree = open(path_);
  EXPECT_EQ(tree.batch_size(), Shape{6});
  EXPECT_EQ(bytes_of(tree.at("a")), bytes_of(counting({4})) + bytes_of(counting({4})).substr(4, 8));
  EXPECT_EQ(tree.at("b", "c").shape(), (Shape{6, 2}));
  EXPECT_EQ(tree["b"].batch_size(), Shape{6});
}

TEST_F(Memmap, ChangesLeaveNoWrongChecksumInTheEnclosingTrees) {
  TensorDict tree;
  tree.set("rows", sample());
  tree.set("y", counting({2}));
  const Path rows = path_ / "rows";
  const std::vector<std::function<void()>> changes = {
      [&] { append_memmap(rows, sample()); },
      [&] { add_memmap_leaf(rows, {.key = "q", .shape = {4}}); },
      [&] { add_memmap_node(rows, "n", {4}); },
      [&] { add_memmap_leaf(path_, {.key = "q", .shape = {4}}); },
      [&] { write_memmap_value(rows, "s", {Value("other")}); },
      [&] { write_memmap(two_rows({"a"}, ""), rows); },
      [&] { save(two_rows({"a"}, ""), rows, {.overwrite = true}); },
      [&] {
        pack_memmap(rows, path_.string() + ".tdz");
        unpack_memmap(path_.string() + ".tdz", rows);
      },
      [&] { write_memmap(two_rows({"a"}, ""), rows, {.in_place = true}); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    save(tree, path_, {.overwrite = true});
    changes[i]();
    const VerifyReport report = verify(path_);
    EXPECT_TRUE(report.ok()) << i << ": " << report.problems.front().what;
    EXPECT_GT(report.num_checksums, 1U) << i;
  }
}

TEST_F(Memmap, AppendsRowsToEntriesWhoseNamesAreNotEncoded) {
  const TensorDict rows = two_rows({"a b", "x"}, "c d");
  write_memmap(rows, path_);
  // tensordict before 0.14 did not encode keys.
  fs::rename(path_ / "c%20d" / "a%20b.memmap", path_ / "c%20d" / "a b.memmap");
  fs::rename(path_ / "c%20d", path_ / "c d");
  fs::rename(path_ / "a%20b.memmap", path_ / "a b.memmap");
  append_memmap(path_, rows);
  const TensorDict tree = open(path_);
  const std::string twice = bytes_of(counting({2})) + bytes_of(counting({2}));
  EXPECT_EQ(bytes_of(tree.at("a b")), twice);
  EXPECT_EQ(bytes_of(tree.at("c d", "a b")), twice);
  EXPECT_EQ(bytes_of(tree.at("c d", "x")), twice);
}

TEST_F(Memmap, AppendsRowsToNodesWhoseNamesClash) {
  const TensorDict rows = two_rows({"x"}, "x.memmap");
  write_memmap(rows, path_);
  ASSERT_TRUE(fs::is_directory(path_ / "%clash-0"));
  append_memmap(path_, rows);
  EXPECT_EQ(open(path_).at("x.memmap", "x").shape(), Shape{4});
  EXPECT_EQ(open(path_).at("x").shape(), Shape{4});
}

TEST_F(Memmap, NeverAppendsToTheFileOfAnotherKey) {
  const TensorDict rows = two_rows({"a b", "a%20b"}, "");
  write_memmap(rows, path_);
  fs::remove(path_ / "a%2520b.memmap");
  EXPECT_EQ(thrown_by([&] { append_memmap(path_, rows); }).code, ErrorCode::corrupt);
  EXPECT_EQ(fs::file_size(path_ / "a%20b.memmap"), 8U);
}

TEST_F(Memmap, RefusesAValueForANodeAndANodeForAValue) {
  write_memmap(sample(), path_);
  TensorDict rows = sample();
  rows.set("b", Value("text"));
  EXPECT_THAT(thrown_by([&] { append_memmap(path_, rows); }).message,
              HasSubstr("expected a <class 'tensordict._td.TensorDict'> in the rows, as in the "
                        "saved tree, found one value"));
  rows = sample();
  rows.set("s", two_rows({}, ""));
  EXPECT_EQ(thrown_by([&] { append_memmap(path_, rows); }).code, ErrorCode::invalid_argument);
  EXPECT_EQ(test::difference(sample(), open(path_)), "");
}

TEST_F(Memmap, AFailedAppendKeepsTheRowsThatACrashedOneAddedBelowTheRoot) {
  const TensorDict rows = two_rows({"x"}, "below");
  write_memmap(rows, path_);
  append_memmap(path_, rows);
  // Restore the old length in meta.json of the root, as if an append had crashed before it replaced
  // this file.
  std::string meta = test::read_bytes(path_ / "meta.json");
  for (std::size_t at = meta.find("[4]"); at != std::string::npos; at = meta.find("[4]")) {
    meta[at + 1] = '2';
  }
  test::write_bytes(path_ / "meta.json", meta);
  {
    std::size_t num_writes = 0;
    const test::WatchChanges full_disk([&](const os::Change& change) {
      if (change.kind != os::Change::Kind::write || num_writes++ == 0) return;
      throw Error::io(ENOSPC, "x", "no space left on device");
    });
    EXPECT_EQ(thrown_by([&] { append_memmap(path_, two_rows({"x"}, "below")); }).system_errno,
              ENOSPC);
  }
  EXPECT_EQ(open(path_).at("x").shape(), Shape{2});
  EXPECT_EQ(bytes_of(open(path_).at("below", "x")),
            bytes_of(counting({2})) + bytes_of(counting({2})));
}

TEST_F(Memmap, ASaveDoesNotReplaceAFolderToWhichRowsAreAppended) {
  write_memmap(sample(), path_);
  int save_errno = 0;
  {
    test::AtChange at(1, [&](const os::Change&) {
      const auto replace = [&] { save(two_rows({"x"}, ""), path_, {.overwrite = true}); };
      save_errno = thrown_by(replace).system_errno;
    });
    append_memmap(path_, sample());
    EXPECT_TRUE(at.was_reached());
  }
  EXPECT_EQ(save_errno, EBUSY);
  EXPECT_EQ(open(path_).batch_size(), Shape{8});
  save(two_rows({"x"}, ""), path_, {.overwrite = true});
}

TEST_F(Memmap, NothingIsAppendedToAFolderThatIsBeingReplaced) {
  write_memmap(sample(), path_);
  int append_errno = 0;
  {
    test::AtChange at(5, [&](const os::Change&) {
      append_errno = thrown_by([&] { append_memmap(path_, sample()); }).system_errno;
    });
    save(two_rows({"x"}, ""), path_, {.overwrite = true});
    EXPECT_TRUE(at.was_reached());
  }
  EXPECT_EQ(append_errno, EBUSY);
  EXPECT_EQ(test::difference(two_rows({"x"}, ""), open(path_)), "");
}

TEST_F(Memmap, NothingIsAddedToAFolderThatIsBeingReplaced) {
  write_memmap(sample(), path_);
  std::vector<int> errors;
  {
    test::AtChange at(5, [&](const os::Change&) {
      NewLeaf leaf;
      leaf.key = "new";
      leaf.dtype = DType::int16;
      leaf.shape = {4};
      for (const std::function<void()>& add : std::vector<std::function<void()>>{
               [&] { add_memmap_leaf(path_, leaf); },
               [&] { add_memmap_node(path_ / "b", "n", {4}); },
               [&] { write_memmap_value(path_, "s", {Value("other")}); }}) {
        errors.push_back(thrown_by(add).system_errno);
      }
    });
    save(two_rows({"x"}, ""), path_, {.overwrite = true});
  }
  EXPECT_THAT(errors, ElementsAre(EBUSY, EBUSY, EBUSY));
  EXPECT_EQ(test::difference(two_rows({"x"}, ""), open(path_)), "");
}

TEST_F(Memmap, RowsMayHaveUnbatchedTensors) {
  TensorDict rows = two_rows({"x"}, "");
  Leaf shared(counting({7}));
  shared.mark_unbatched();
  rows.set("t", shared);
  write_memmap(rows, path_);
  append_memmap(path_, rows);
  append_memmap(path_, two_rows({"x"}, ""));
  EXPECT_EQ(open(path_).at("x").shape(), Shape{6});
  EXPECT_EQ(bytes_of(open(path_).at("t")), bytes_of(counting({7})));
  rows.set("t", counting({2}));
  EXPECT_THAT(thrown_by([&] { append_memmap(path_, rows); }).message,
              HasSubstr("expected an unbatched tensor"));
}

TEST_F(Memmap, NeverAppendsThroughLinks) {
  const TensorDict rows = two_rows({"x"}, "below");
  for (const char* name : {"below", "x.memmap"}) {
    write_memmap(rows, path_);
    fs::remove_all(folder_ / "outside");
    fs::rename(path_ / name, folder_ / "outside");
    fs::create_symlink(folder_ / "outside", path_ / name);
    EXPECT_EQ(thrown_by([&] { append_memmap(path_, rows); }).code, ErrorCode::corrupt) << name;
    const bool is_node = fs::is_directory(folder_ / "outside");
    EXPECT_EQ(fs::file_size(is_node ? folder_ / "outside" / "x.memmap" : folder_ / "outside"), 8U);
    fs::remove(path_ / name);
  }
}

TEST_F(Memmap, AppendsOnlyToFoldersOfLimitedDepth) {
  fs::create_directory(path_);
  os::Directory folder = os::Directory::open(path_);
  const std::string meta = R"({"_type": "<class 'm.C'>"})";
  for (int i = 0; i < 600; ++i) {
    os::File::create_at(folder, "meta.json").write_at(0, std::as_bytes(std::span(meta)));
    folder.create_directory("_tensordict");
    folder = os::Directory::open_at(folder, "_tensordict");
  }
  EXPECT_THAT(thrown_by([&] { append_memmap(path_, two_rows({"x"}, "")); }).message,
              HasSubstr("nodes nested too deep"));
}

TEST_F(Memmap, RefusesATensorOfAnotherLengthThanTheBatchSize) {
  write_memmap(two_rows({"x"}, ""), path_);
  std::string meta = test::read_bytes(path_ / "meta.json");
  meta.replace(meta.find("[2]"), 3, "[1]");
  test::write_bytes(path_ / "meta.json", meta);
  EXPECT_THAT(thrown_by([&] { append_memmap(path_, two_rows({"x"}, "")); }).message,
              HasSubstr("expected a first dimension of 2, as in the batch size, found [1]"));
}

TEST_F(Memmap, RefusesMismatchedRowsAndAppendsNothing) {
  write_memmap(sample(), path_);
  TensorDict rows = sample();
  rows.set("a", counting({4, 1}));
  const auto thrown = thrown_by([&] { append_memmap(path_, rows); });
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
  EXPECT_THAT(thrown.message, HasSubstr("expected float32 [4], found float32 [4, 1]"));
  EXPECT_EQ(fs::file_size(path_ / "b/c.memmap"), 32U);
  EXPECT_EQ(open(path_).batch_size(), Shape{4});
}

}  // namespace
}  // namespace tenfold
