#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "formats/folder/plan.hpp"
#include "formats/format.hpp"
#include "io/sample_trees.hpp"
#include "support/file_limit.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"

namespace tenfold {

using namespace detail::formats;
namespace {

namespace fs = std::filesystem;
using test::counting;
using test::message_of;
using test::TemporaryFolder;
using test::Warnings;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void save_folder(const TensorDict& tree, const fs::path& path) {
  WriteRequest request;
  request.durable = false;
  folder::kFormat.write(tree, path, request);
}

/// Saves as memmap() does: writes the same files as tensordict, without checksums and notes.
void save_plain(const TensorDict& tree, const fs::path& path) {
  WriteRequest request;
  request.durable = request.checksums = request.notes = false;
  folder::kFormat.write(tree, path, request);
}

TensorDict open_folder(const fs::path& path, Mode mode = Mode::read) {
  return folder::kFormat.open(path, {mode});
}

ino_t inode_of(const fs::path& path) {
  struct stat status{};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_ino;
}

TensorDict tree_of(NodeKind kind) {
  NodeInfo info;
  info.kind = kind;
  return TensorDict(info);
}

TensorDict batch_of(Shape batch_size, DimNames names = {}) {
  NodeInfo info;
  info.batch_size = std::move(batch_size);
  info.names = std::move(names);
  return TensorDict(info);
}

/// Saves `tree` as a folder, opens the folder and compares both. verify() must find no problem.
void expect_round_trip(const TensorDict& tree) {
  const TemporaryFolder folder;
  save_folder(tree, folder / "tree");
  EXPECT_EQ(test::difference(tree, open_folder(folder / "tree")), "");
  const VerifyReport report = folder::kFormat.verify(folder / "tree", {});
  EXPECT_TRUE(report.ok()) << report.problems[0].path << ": " << report.problems[0].what;
}

TensorDict with(const std::string& key, TensorDict::Item item) {
  TensorDict tree;
  tree.set(key, std::move(item));
  return tree;
}

TEST(MemmapFolder, KeepsContainersIntKeysAndSharedTensors) {
  expect_round_trip(test::sample_checkpoint());
}

TEST(MemmapFolder, KeepsListsAndTuplesOfMoreThanTenItems) {
  TensorDict list = tree_of(NodeKind::list);
  for (int i = 0; i < 12; ++i) {
    if (i % 3 == 0) {
      TensorDict item = tree_of(NodeKind::tuple);
      item.set("0", counting({1}));
      list.set(std::to_string(i), item);
    } else {
      list.set(std::to_string(i), counting({2}, static_cast<float>(i)));
    }
  }
  TensorDict root = tree_of(NodeKind::dict);
  root.set("list", list);
  expect_round_trip(root);
}

TEST(MemmapFolder, SortsAListThatAnotherToolWroteWithNodesLast) {
  const TemporaryFolder folder;
  TensorDict list = tree_of(NodeKind::list);
  TensorDict item = tree_of(NodeKind::dict);
  item.set("x", counting({1}));
  list.set("0", item);
  list.set("1", counting({2}));
  TensorDict root = tree_of(NodeKind::dict);
  root.set("l", list);
  save_folder(root, folder / "tree");
  std::ofstream(folder / "tree/l/meta.json")
      << R"({"1":{"device":"cpu","shape":[2],"dtype":"torch.float32","is_nested":false},)"
         R"("0":{"type":"TensorDict"},"shape":[],"_type":"<class 'tensordict._td.TensorDict'>"})";
  EXPECT_EQ(test::difference(root, open_folder(folder / "tree")), "");
}

TEST(MemmapFolder, KeepsJsonValuesWithTuplesIntKeysAndSpecialNumbers) {
  TensorDict tree = tree_of(NodeKind::dict);
  Value::Object object;
  object.int_keys = true;
  object.members = {{"3", Value(Value::Tuple{{Value(1), Value(Value::List{})}})}};
  tree.set("a", Value(object));
  tree.set("big", Value(Value::BigInt{"1180591620717411303424"}));
  tree.set("nan", Value(std::numeric_limits<double>::quiet_NaN()));
  tree.set("inf", Value(-std::numeric_limits<double>::infinity()));
  tree.set("text", Value("h\xC3\xA9 \xF0\x9F\x98\x80 \n"));
  tree.set("t", counting({2}));
  expect_round_trip(tree);
}

TEST(MemmapFolder, KeepsKeysReservedByTensordict) {
  TensorDict tree;
  tree.set("a", counting({1}));
  tree.set("device", Value("cuda"));
  tree.set("shape", counting({3}));
  TensorDict node;
  node.set("shape", counting({2}, 5));
  tree.set("_type", node);
  tree.set("z", counting({1}));
  expect_round_trip(tree);

  const TemporaryFolder folder;
  save_folder(tree, folder / "tree");
  EXPECT_EQ(
      read_text(folder / "tree/meta.json"),
      R"({"a": {"device": "cpu", "shape": [1], "dtype": "torch.float32", "is_nested": false}, )"
      R"("device": "cpu", "shape": [], "_type": "<class 'tensordict._td.TensorDict'>", )"
      R"("z": {"device": "cpu", "shape": [1], "dtype": "torch.float32", "is_nested": false}, )"
      R"("_format_version": 1, "_class": "tensordict:TensorDict"})");
  EXPECT_EQ(fs::file_size(folder / "tree/shape.memmap"), 12U);
}

TEST(MemmapFolder, KeepsEntriesWithTheSameFileName) {
  TensorDict child;
  child.set("v", counting({1}));
  TensorDict tree;
  tree.set("x", counting({2}));
  tree.set("x.memmap", child);
  tree.set("meta.json", child);
  const std::vector<std::int64_t> lengths = {1, 3, 2, 1};
  tree.set("a", TensorDict::Item(Leaf::nested(
                    counting({5}), Tensor::from(std::span<const std::int64_t>(lengths), {2, 2}))));
  tree.set("a.shape", counting({4}));
  const TemporaryFolder folder;
  save_folder(tree, folder / "tree");
  const TensorDict again = open_folder(folder / "tree");
  ASSERT_EQ(again.keys(), tree.keys());
  EXPECT_EQ(test::difference(again["x.memmap"], child), "");
  EXPECT_EQ(test::difference(again["meta.json"], child), "");
  EXPECT_EQ(test::bytes_of(again.at("x")), test::bytes_of(counting({2})));
  EXPECT_EQ(test::bytes_of(again.at("a")), test::bytes_of(counting({5})));
  EXPECT_EQ(test::bytes_of(again.at("a.shape")), test::bytes_of(counting({4})));
  const Tensor found = std::get<Leaf>(again.get("a")).sizes();
  EXPECT_EQ(test::bytes_of(found),
            test::bytes_of(Tensor::from(std::span<const std::int64_t>(lengths), {2, 2})));
  // tensordict loads a tensor only from a file named "<key>.memmap". It skips the tensor "a", whose
  // files have other names.
  EXPECT_TRUE(fs::is_regular_file(folder / "tree/x.memmap"));
  EXPECT_TRUE(fs::is_regular_file(folder / "tree/a.shape.memmap"));
  EXPECT_FALSE(fs::exists(folder / "tree/a.memmap"));
  EXPECT_TRUE(folder::kFormat.verify(folder / "tree", {}).ok());
}

TEST(MemmapFolder, KeepsKeysThatAreLongerThanFileNames) {
  const std::string tensor(249, 'k');  // 249 + sizeof ".memmap" - 1 is 256
  const std::string node(256, 'n');
  const std::string value(300, '/');
  const std::string longest(248, 's');  // fits exactly
  TensorDict child;
  child.set(tensor, counting({3}));
  TensorDict tree = with(tensor, Leaf(counting({1})));
  tree.set(node, child);
  tree.set(value, NonTensor{Value(7)});
  tree.set(longest, counting({2}));
  const TemporaryFolder folder;
  save_folder(tree, folder / "tree");
  const TensorDict again = open_folder(folder / "tree");
  EXPECT_EQ(test::difference(again, tree), "");
  EXPECT_TRUE(fs::is_regular_file(folder / "tree" / (longest + ".memmap")));
  EXPECT_TRUE(folder::kFormat.verify(folder / "tree", {}).ok());
}

TEST(MemmapFolder, KeepsUnbatchedTensorsInASeparateFolder) {
  TensorDict tree = batch_of({3});
  tree.set("row", counting({3, 2}));
  for (const std::string key : {"table", "shape"}) {
    Leaf leaf(counting({7}));
    leaf.mark_unbatched();
    tree.set(key, TensorDict::Item(leaf));
  }
  tree.info().schema = Value("columns");
  const TemporaryFolder folder;
  save_folder(tree, folder / "tree");
  const TensorDict again = open_folder(folder / "tree");
  EXPECT_EQ(test::difference(tree, again), "");
  EXPECT_TRUE(std::get<Leaf>(again.get("table")).is_unbatched());
  EXPECT_TRUE(std::get<Leaf>(again.get("shape")).is_unbatched());
  EXPECT_FALSE(std::get<Leaf>(again.get("row")).is_unbatched());
  EXPECT_EQ(again.info().schema, Value("columns"));
  // The metadata of the folder does not name the sub-folder, so tensordict skips it.
  EXPECT_THAT(read_text(folder / "tree/meta.json"), Not(HasSubstr("table")));
  EXPECT_EQ(test::bytes_of(open_folder(folder / "tree/%values").at("table")),
            test::bytes_of(counting({7})));
  EXPECT_TRUE(folder::kFormat.verify(folder / "tree", {}).ok());
}

TEST(MemmapFolder, IgnoresAnUnbatchedTensorIfAnotherToolAddedItsKey) {
  TensorDict tree = batch_of({3});
  tree.set("row", counting({3}));
  Leaf leaf(counting({7}));
  leaf.mark_unbatched();
  tree.set("table", TensorDict::Item(leaf));
  const TemporaryFolder folder;
  save_folder(tree, folder / "tree");
  tree.set("table", counting({3}, 5));
  save_plain(tree, folder / "new");
  for (const char* file : {"meta.json", "table.memmap"}) {
    fs::copy_file(folder / "new" / file, folder / "tree" / file,
                  fs::copy_options::overwrite_existing);
  }
  const Warnings warnings;
  EXPECT_EQ(test::difference(tree, open_folder(folder / "tree")), "");
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("tensor \"table\": ignored, because")));
}

TEST(MemmapFolder, StoresSharedTensorsOnce) {
  const TemporaryFolder folder;
  save_folder(test::sample_checkpoint(), folder / "tree");
  EXPECT_EQ(inode_of(folder / "tree/model/embed.weight.memmap"),
            inode_of(folder / "tree/model/head.weight.memmap"));
  const TensorDict model = open_folder(folder / "tree")["model"];
  EXPECT_EQ(model.at("embed.weight").raw_data(), model.at("head.weight").raw_data());
  EXPECT_NE(model.at("embed.weight").raw_data(), model.at("head.bias").raw_data());
}

TEST(MemmapFolder, CopiesShareStorageWhileTheirBytesAreEqual) {
  const TemporaryFolder folder;
  save_folder(test::sample_checkpoint(), folder / "tree");
  fs::copy(folder / "tree", folder / "copy", fs::copy_options::recursive);
  ASSERT_NE(inode_of(folder / "copy/model/embed.weight.memmap"),
            inode_of(folder / "copy/model/head.weight.memmap"));
  {
    const Warnings warnings;
    const TensorDict model = open_folder(folder / "copy")["model"];
    EXPECT_EQ(model.at("head.weight").raw_data(), model.at("embed.weight").raw_data());
    EXPECT_THAT(warnings.all(), IsEmpty());
    // A save of the copy stores the shared tensors only once, as in the original folder.
    save_folder(open_folder(folder / "copy"), folder / "again");
    EXPECT_EQ(inode_of(folder / "again/model/embed.weight.memmap"),
              inode_of(folder / "again/model/head.weight.memmap"));
  }
  std::ofstream(folder / "copy/model/head.weight.memmap", std::ios::in | std::ios::binary) << 'x';
  const Warnings warnings;
  const TensorDict model = open_folder(folder / "copy")["model"];
  const Tensor first = model.at("embed.weight");  // the tensor whose storage was shared
  EXPECT_NE(model.at("head.weight").raw_data(), first.raw_data());
  EXPECT_EQ(test::bytes_of(model.at("head.weight"))[0], 'x');
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("\"head.weight\": an alias in %notes.json, but "
                                                    "its bytes differ: memory is not shared")));
}

TEST(MemmapFolder, CopiesShareStorageWithANodeThatIsNotUsedAnyMore) {
  const Tensor weight = counting({300'000});  // larger than one comparison step
  TensorDict tree;
  tree.set("a", TensorDict::dict({{"w", weight}}));
  tree.set("b", TensorDict::dict({{"w", weight}}));
  const TemporaryFolder folder;
  save_folder(tree, folder / "tree");
  fs::copy(folder / "tree", folder / "copy", fs::copy_options::recursive);
  ASSERT_NE(inode_of(folder / "copy/a/w.memmap"), inode_of(folder / "copy/b/w.memmap"));
  const auto nodes = [&] {
    TensorDict root = open_folder(folder / "copy");
    TensorDict second = root["b"];
    const Tensor first = root["a"].at("w");
    return std::pair(std::move(second), first.raw_data());  // the root and "a" are gone
  };
  {
    const Warnings warnings;
    const auto [second, mapped] = nodes();
    EXPECT_EQ(second.at("w").raw_data(), mapped);
    EXPECT_EQ(test::bytes_of(second.at("w")), test::bytes_of(weight));
    EXPECT_THAT(warnings.all(), IsEmpty());
  }
  {
    std::fstream file(folder / "copy/b/w.memmap", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file << 'x';
  }
  const Warnings warnings;
  const auto [second, mapped] = nodes();
  EXPECT_NE(second.at("w").raw_data(), mapped);
  EXPECT_EQ(test::bytes_of(second.at("w")).back(), 'x');
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("\"w\": an alias in %notes.json, but its bytes "
                                                    "differ: memory is not shared")));
}

TEST(MemmapFolder, ReadsANestedTensorWithoutComponents) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "tree");
  std::ofstream(folder / "tree/meta.json")
      << R"({"j": {"device": "cpu", "shape": [0, 2], "dtype": "torch.float32", "is_nested": true}, )"
      << R"("shape": [], "device": "cpu", "_type": "<class 'tensordict._td.TensorDict'>"})";
  const TensorDict tree = open_folder(folder / "tree");
  const Leaf leaf = std::get<Leaf>(tree.get("j"));
  ASSERT_TRUE(leaf.is_nested());
  EXPECT_EQ(leaf.sizes().shape(), (Shape{0, 2}));
  EXPECT_TRUE(folder::kFormat.verify(folder / "tree", {}).ok());
  save_folder(tree, folder / "again");
  EXPECT_EQ(std::get<Leaf>(open_folder(folder / "again").get("j")).sizes().shape(), (Shape{0, 2}));
}

TEST(MemmapFolder, StoresSharedTensorsSeparatelyWithoutNotes) {
  TensorDict tree;
  const Tensor weight = counting({2});
  tree.set("a", weight);
  tree.set("b", weight);
  const TemporaryFolder folder;
  save_plain(tree, folder / "tree");
  EXPECT_NE(inode_of(folder / "tree/a.memmap"), inode_of(folder / "tree/b.memmap"));
  EXPECT_FALSE(fs::exists(folder / "tree/%notes.json"));
  EXPECT_FALSE(fs::exists(folder / "tree/%checksums"));
}

TEST(MemmapFolder, WritesZerosAsSparseRegions) {
  TensorDict tree;
  tree.set("big", Tensor::zeros(DType::uint8, {8 << 20}));
  tree.set("v", Value("kept"));
  const TemporaryFolder folder;
  WriteRequest request;
  request.durable = request.checksums = request.notes = false;
  request.zeros = true;
  folder::kFormat.write(tree, folder / "tree", request);
  struct stat status{};
  ASSERT_EQ(::stat((folder / "tree/big.memmap").c_str(), &status), 0);
  EXPECT_EQ(status.st_size, 8 << 20);
  EXPECT_LT(status.st_blocks, 64);
  EXPECT_EQ(open_folder(folder / "tree").value("v"), Value("kept"));
}

TEST(MemmapFolder, WritesStridedTensorsAndLargeOnes) {
  TensorDict tree;
  const Tensor base = counting({1000, 600});
  tree.set("t", Tensor(DType::float32, {600, 1000}, {1, 600}, base.buffer(), 0));
  tree.set("large", counting({3 << 20}));
  tree.set("row", base.select(7));
  expect_round_trip(tree);
}

TEST(MemmapFolder, WarnsOnceThatTensordictCannotLoadFloat8) {
  TensorDict tree;
  tree.set("a", Tensor::zeros(DType::float8_e4m3fn, {4}));
  tree.set("b", Tensor::zeros(DType::float4_e2m1fn_x2, {4}));
  const TemporaryFolder folder;
  const Warnings warnings;
  save_folder(tree, folder / "tree");
  EXPECT_THAT(warnings.all(),
              ElementsAre(AllOf(HasSubstr("tensor \"a\""), HasSubstr("safetensors"))));
  EXPECT_EQ(test::difference(tree, open_folder(folder / "tree")), "");
}

TEST(MemmapFolder, ReplacesATreeAndKeepsOldReaders) {
  const TemporaryFolder folder;
  TensorDict old_tree;
  old_tree.set("a", counting({2}, 1));
  TensorDict new_tree;
  new_tree.set("b", counting({2}, 2));
  save_folder(old_tree, folder / "tree");
  const TensorDict reader = open_folder(folder / "tree");
  const Tensor mapped = reader.at("a");
  save_folder(new_tree, folder / "tree");
  EXPECT_EQ(test::bytes_of(mapped), test::bytes_of(counting({2}, 1)));
  EXPECT_EQ(open_folder(folder / "tree").keys(), std::vector<std::string>{"b"});
  EXPECT_FALSE(fs::exists(folder / "tree/a.memmap"));
}

TEST(MemmapFolder, RefusesToReplaceATreeWithForeignFiles) {
  const TemporaryFolder folder;
  const fs::path path = folder / "tree";
  save_folder(test::sample_checkpoint(), path);
  save_folder(test::sample_checkpoint(), path);  // files of a previous save are not foreign
  std::ofstream(path / "model/thesis.tex") << "years of work";
  const std::string message = message_of([&] { save_folder(test::sample_checkpoint(), path); },
                                         ErrorCode::invalid_argument);
  EXPECT_THAT(message,
              HasSubstr(R"(tree: folder to replace: expected only what its metadata names, found )"
                        R"("model/thesis.tex"; save to another path, or remove these first)"));
  EXPECT_EQ(fs::file_size(path / "model/thesis.tex"), 13U);
}

TEST(MemmapFolder, RefusesToReplaceAForeignFolder) {
  const TemporaryFolder folder;
  TensorDict tree;
  tree.set("a", counting({1}));
  fs::create_directory(folder / "empty");
  save_folder(tree, folder / "empty");
  fs::create_directory(folder / "home");
  for (const std::string name : {"b", "a", "d", "c"})
    std::ofstream(folder / ("home/" + name)) << "";
  const std::string message =
      message_of([&] { save_folder(tree, folder / "home"); }, ErrorCode::invalid_argument);
  EXPECT_THAT(message,
              HasSubstr(R"(home: folder to replace: expected a saved tree or an empty )"
                        R"(folder, found "a", "b", "c" and 1 more; save to another path)"));
  EXPECT_TRUE(fs::exists(folder / "home/a"));
}

TEST(MemmapFolder, TreatsTheFilesOfATreeWithDamagedMetadataAsForeign) {
  TensorDict tree;
  tree.set("a", counting({1}));
  for (const std::string meta : {"[]", R"({"_type": "<class 'other.Type'>", "shape": 3})", "{"}) {
    const TemporaryFolder folder;
    save_folder(tree, folder / "tree");
    std::ofstream(folder / "tree/meta.json") << meta;
    EXPECT_THAT(
        message_of([&] { save_folder(tree, folder / "tree"); }, ErrorCode::invalid_argument),
        HasSubstr(
            "expected only what its metadata names, found \"a.memmap\"; save to another path"))
        << meta;
    EXPECT_TRUE(fs::exists(folder / "tree/a.memmap"));
    fs::remove(folder / "tree/a.memmap");
    save_folder(tree, folder / "tree");
    EXPECT_EQ(test::difference(tree, open_folder(folder / "tree")), "");
  }
}

TEST(MemmapFolder, DoesNotReplaceADataSetWithADamagedOrNewerManifest) {
  TensorDict tree;
  tree.set("a", counting({1}));
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& manifest, ErrorCode code) {
    save_folder(tree, folder / "data/part-0");
    std::ofstream(folder / "data/%parts.json") << manifest;
    const std::string message = message_of([&] { save_folder(tree, folder / "data"); }, code);
    EXPECT_TRUE(fs::exists(folder / "data/part-0/a.memmap"));
    return message;
  };
  EXPECT_THAT(
      refusal("{", ErrorCode::invalid_argument),
      HasSubstr("expected only what its metadata names, found \"part-0\"; save to another path"));
  EXPECT_THAT(refusal(R"({"version": 99, "schema": {}, "parts": []})", ErrorCode::unsupported),
              HasSubstr("expected 1 at most, found 99; use a newer version of tenfold"));
}

TEST(MemmapFolder, ReplacesATreeWithWhatCrashedSavesLeftInIt) {
  TensorDict tree;
  tree.set("a", counting({1}));
  const TemporaryFolder folder;
  save_folder(tree, folder / "tree");
  fs::create_directory(folder / "tree/.n.tenfold-1");
  std::ofstream(folder / "tree/.n.tenfold-1/x.memmap") << "left";
  std::ofstream(folder / "tree/.tdtmp-1") << "left";
  save_folder(tree, folder / "tree");
  EXPECT_FALSE(fs::exists(folder / "tree/.n.tenfold-1"));
  EXPECT_FALSE(fs::exists(folder / "tree/.tdtmp-1"));
  EXPECT_EQ(test::difference(tree, open_folder(folder / "tree")), "");
}

struct Refused {
  std::string name;
  std::string message;
  std::function<TensorDict()> make;
  ErrorCode code = ErrorCode::unsupported;
};

TEST(MemmapFolder, RefusesByKeyEntriesThatTensordictFilesCannotHold) {
  Value::Object int_keys;
  int_keys.int_keys = true;
  Leaf unbatched(counting({1}));
  unbatched.mark_unbatched();
  TensorDict clash = with("x", Leaf(counting({1})));
  clash.set("x.memmap", TensorDict());
  TensorDict schema;
  schema.info().schema = Value(1);
  const Leaf leaf(counting({1}));
  const std::string long_key(249, 'k');  // 249 + sizeof ".memmap" - 1 is 256
  const Refused cases[] = {
      {"dict", "the root: a node of kind dict", [] { return tree_of(NodeKind::dict); }},
      {"list", "key \"l\": a node of kind list", [] { return with("l", tree_of(NodeKind::list)); }},
      {"shape", "key \"shape\": a key that tensordict's metadata uses itself",
       [] { return with("shape", Leaf(counting({1}))); }},
      {"device", "key \"device\": a key that tensordict's metadata uses itself",
       [] { return with("device", NonTensor{Value(1)}); }},
      {"ints", "key \"v\": a dict whose keys are not all str",
       [&] { return with("v", NonTensor{int_keys}); }},
      {"unbatched", "key \"u\": an unbatched tensor", [&] { return with("u", unbatched); }},
      {"clash", "key \"x.memmap\": a key whose file name is too long, or belongs to another key",
       [&] { return clash; }},
      {"long", "a key whose file name is too long", [&] { return with(long_key, leaf); }},
      {"schema", "the root: the schema of a data set", [&] { return schema; }},
  };
  for (const Refused& refused : cases) {
    const TemporaryFolder folder;
    const std::string message =
        message_of([&] { save_plain(refused.make(), folder / "tree"); }, refused.code);
    EXPECT_THAT(message, HasSubstr(refused.message)) << refused.name;
    EXPECT_FALSE(fs::exists(folder / "tree")) << refused.name;
    save_folder(refused.make(), folder / "tree");
  }
}

TEST(MemmapFolder, RefusesEntriesThatNoFolderCanHold) {
  TensorDict itself;
  itself.set("again", itself);
  TensorDict named = batch_of({1}, {"time"});
  named.set("_names", counting({1}));
  const std::vector<std::int64_t> lengths = {1};
  const Leaf nested =
      Leaf::nested(counting({1}), Tensor::from(std::span<const std::int64_t>(lengths), {1, 1}));
  const Refused cases[] = {
      {"bytes", "expected UTF-8", [] { return with("\xFF", Leaf(counting({1}))); },
       ErrorCode::invalid_argument},
      {"itself", "nested", [&] { return itself; }, ErrorCode::invalid_argument},
      {"names", "key \"_names\": expected another key", [&] { return named; }},
      {"nested", "key \"shape\": a nested tensor", [&] { return with("shape", nested); }},
      {"lazy", "key \"l/x\": element of a lazy stack",
       [] {
         TensorDict stack = tree_of(NodeKind::lazy_stack);
         stack.set("x", TensorDict());
         return with("l", stack);
       },
       ErrorCode::invalid_argument},
  };
  for (const Refused& refused : cases) {
    const std::string message =
        message_of([&] { folder::kFormat.check(refused.make()); }, refused.code);
    EXPECT_THAT(message, HasSubstr(refused.message)) << refused.name;
  }
  itself.set("again", Value());  // otherwise it would keep itself alive
}

TEST(MemmapFolder, RefusesANodeInWhichNoShapeBeginsWithTheBatchSize) {
  TensorDict tree = batch_of({4});
  tree.set("x", counting({3}));
  EXPECT_EQ(message_of([&] { folder::kFormat.check(with("n", tree)); }, ErrorCode::unsupported),
            "key \"n/x\": the shape does not fit: expected it to start with the batch_size [4], "
            "found [3]");
  // One shape that begins with the batch size is enough, because tensordict up to 0.14 saves an
  // UnbatchedTensor like any other tensor.
  tree.set("y", counting({4, 2}));
  expect_round_trip(tree);
}

TEST(MemmapFolder, KeepsABatchSizeNextToEntriesThatNeedNotBeginWithIt) {
  TensorDict tree = batch_of({4});
  tree.set("value", NonTensor{Value(1)});
  tree.set("node", batch_of({4, 2}));
  Leaf unbatched(counting({3}));
  unbatched.mark_unbatched();
  tree.set("unbatched", unbatched);
  expect_round_trip(tree);
  const std::vector<std::int64_t> lengths = {1, 2};
  TensorDict nested = batch_of({2, 2});
  nested.set("x", Leaf::nested(counting({3}),
                               Tensor::from(std::span<const std::int64_t>(lengths), {2, 1})));
  expect_round_trip(nested);
}

TEST(MemmapFolder, RefusesMetadataLongerThanReadersAccept) {
  const auto refused = [](const TensorDict& tree) {
    const auto plan = [&] { folder::plan_tree(tree, {.max_meta_bytes = 1000}); };
    return message_of(plan, ErrorCode::unsupported);
  };
  EXPECT_EQ(refused(with("n", with("v", NonTensor{Value(std::string(1000, 'x'))}))),
            "n/v/meta.json: too long: expected at most 1000 bytes, found 1114");
  TensorDict tree;
  tree.info().metadata["long"] = std::string(1000, 'x');
  EXPECT_THAT(refused(tree), HasSubstr("%notes.json: too long: expected at most 1000 bytes"));
}

TEST(MemmapFolder, RefusesABatchSizeThatIsTooLarge) {
  const TensorDict tree = batch_of({std::int64_t{1} << 62, 4});
  EXPECT_EQ(message_of([&] { folder::kFormat.check(with("n", tree)); }, ErrorCode::unsupported),
            "key \"n\": batch size: shape too large: expected a product of the lengths below 2^63, "
            "found [4611686018427387904, 4]");
  EXPECT_THAT(message_of([&] { folder::kFormat.check(tree); }, ErrorCode::unsupported),
              HasSubstr("the root: batch size: shape too large"));
}

TEST(MemmapFolder, KeepsLongShapesWithoutElements) {
  constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max();
  TensorDict tree = batch_of({kLongest});
  tree.set("x", Tensor::zeros(DType::float32, {kLongest, 0}));
  expect_round_trip(tree);
}

TEST(MemmapFolder, RoundTripsDurableSavesWithSeveralThreadCounts) {
  TensorDict tree = test::sample_checkpoint();
  for (int i = 0; i < 100; ++i)
    tree.set("k" + std::to_string(i), counting({100}, static_cast<float>(i)));
  for (const int threads : {1, 2, 7}) {
    const TemporaryFolder folder;
    WriteRequest request;
    request.num_threads = threads;
    folder::kFormat.write(tree, folder / "tree", request);
    EXPECT_EQ(test::difference(tree, open_folder(folder / "tree")), "");
    EXPECT_TRUE(folder::kFormat.verify(folder / "tree", {}).ok());
  }
}

TEST(MemmapFolder, ManyThreadsWriteDeepTreesWithFewOpenFolders) {
  constexpr int kLevels = 300;
  TensorDict tree;
  for (int i = 0; i < kLevels; ++i) {
    TensorDict above;
    above.set("x", counting({4}, static_cast<float>(i)));
    above.set("n", std::move(tree));
    tree = std::move(above);
  }
  const TemporaryFolder folder;
  WriteRequest request;
  request.num_threads = 16;
  request.durable = true;
  {
    const test::FileLimit limit(kLevels + 400);
    folder::kFormat.write(tree, folder / "tree", request);
  }
  EXPECT_EQ(test::difference(tree, open_folder(folder / "tree")), "");
}

}  // namespace
}  // namespace tenfold
