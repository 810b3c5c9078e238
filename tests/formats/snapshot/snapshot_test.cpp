#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/snapshot.hpp>

#include "core/tensor/leaf_bytes.hpp"
#include "formats/format.hpp"
#include "formats/snapshot/manifest.hpp"
#include "formats/snapshot/plan.hpp"
#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::test {

using namespace detail::formats;
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;

TensorDict saved_and_opened(const TensorDict& tree, const Path& path,
                            const SnapshotOptions& options = {}) {
  save_snapshot(tree, path, options);
  EXPECT_TRUE(snapshot::kFormat.probe(path));
  EXPECT_THAT(snapshot::kFormat.verify(path, {}).problems, IsEmpty());
  return snapshot::kFormat.open(path, {});
}

/// Returns the tree {"state": {"x": held}}.
template <class Held>
TensorDict state_of(Held held) {
  TensorDict state = node_of(NodeKind::dict);
  state.set("x", TensorDict::Item(std::move(held)));
  TensorDict root = node_of(NodeKind::dict);
  root.set("state", state);
  return root;
}

std::vector<std::string> files_below(const Path& path) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) names.push_back(entry.path().lexically_relative(path).string());
  }
  std::ranges::sort(names);
  return names;
}

TEST(Snapshot, RoundTripsTheState) {
  const TemporaryFolder folder;
  EXPECT_EQ(difference(sample_checkpoint(), saved_and_opened(sample_checkpoint(), folder / "s")),
            "");
}

TEST(Snapshot, KeepsKindsOfRootsAndUnusualKeys) {
  const TemporaryFolder folder;
  TensorDict ordered = node_of(NodeKind::ordered_dict);
  TensorDict list = node_of(NodeKind::list);
  TensorDict numbers = node_of(NodeKind::dict, true);
  list.set("0", counting({2}));
  list.set("1", Value("text"));
  numbers.set("-3", counting({1}));
  numbers.set("10", Value(2));
  for (const char* key : {"", "a/b", "%", "..", "%2F", "\xF0\x9F\x98\x80", "\x7F\xC2\x85"}) {
    ordered.set(key, counting({1}));
  }
  ordered.set("list", list);
  ordered.set("numbers", numbers);
  for (const TensorDict& tree : {ordered, list, numbers}) {
    EXPECT_EQ(difference(tree, saved_and_opened(tree, folder / "s")), "");
  }
}

TEST(Snapshot, KeepsValuesBitForBit) {
  const TemporaryFolder folder;
  Value::Object object;
  object.ordered = true;
  object.members = {{"half", Value(0.1)},
                    {"large", Value(Value::BigInt{"-123456789012345678901234567890"})},
                    {"least", Value(std::numeric_limits<std::int64_t>::min())},
                    {"infinite", Value(-std::numeric_limits<double>::infinity())},
                    {"yes", Value(true)},
                    {"list", Value(Value::List{{Value(1), Value("two"), Value(Value::List{})}})}};
  const TensorDict tree = state_of(NonTensor{Value(object)});
  const TensorDict found = saved_and_opened(tree, folder / "s");
  EXPECT_EQ(found.value("state"), (Value(Value::Object{{{"x", Value(object)}}})));
}

TEST(Snapshot, StoresSharedTensorsOnceAndRestoresSharing) {
  const TemporaryFolder folder;
  const TensorDict tree = saved_and_opened(sample_checkpoint(), folder / "s");
  EXPECT_EQ(tree.at("model", "embed.weight").raw_data(),
            tree.at("model", "head.weight").raw_data());
  // The shared tensors (12 floats) have their own file. The other two (4 and 12 floats) are in one
  // file, in which each begins at a multiple of 64 bytes.
  EXPECT_EQ(fs::file_size(folder / "s" / "0" / "model" / "embed.weight"), 48U);
  EXPECT_EQ(fs::file_size(folder / "s" / "batched" / "0"), 64U + 48U);
}

TEST(Snapshot, KeepsShortBytesInItsMetadataAndLongOnesInAFile) {
  const TemporaryFolder folder;
  TensorDict root = node_of(NodeKind::dict);
  using Special = Value::Special;
  const Value brief(Special{Special::Type::bytes, std::string("\0\xff\n", 3), {}});
  const Value large(Special{Special::Type::bytes, std::string(70'000, 'x'), {}});
  root.set("brief", NonTensor{brief});
  root.set("large", NonTensor{large});
  const TensorDict tree = saved_and_opened(root, folder / "s");
  EXPECT_EQ(tree.value("brief"), brief);
  EXPECT_EQ(tree.value("large"), large);
  EXPECT_THAT(files_below(folder / "s"),
              ElementsAre("%checksums", ".snapshot_metadata", "0/large"));
}

TEST(Snapshot, KeepsSharedStorageOfChunkedTensors) {
  const TemporaryFolder folder;
  const Tensor tensor = counting({6, 2});
  TensorDict root = node_of(NodeKind::dict);
  root.set("a", tensor);
  root.set("b", tensor);
  const TensorDict tree =
      saved_and_opened(root, folder / "s", {.slab_bytes = 1, .chunk_bytes = 16});
  EXPECT_THAT(files_below(folder / "s"), SizeIs(3 + 2));
  EXPECT_EQ(stored_range(std::get<Leaf>(tree.get("a"))),
            stored_range(std::get<Leaf>(tree.get("b"))));
  EXPECT_EQ(bytes_of(tree.at("b")), bytes_of(tensor));
}

TEST(Snapshot, SplitsLargeTensorsAndReadsOnlyTheNeededChunks) {
  const TemporaryFolder folder;
  const TensorDict tree = saved_and_opened(state_of(Leaf(counting({10, 2}))), folder / "s",
                                           {.slab_bytes = 1, .chunk_bytes = 24});
  EXPECT_THAT(files_below(folder / "s"),
              ElementsAre("%checksums", ".snapshot_metadata", "0/state/x_0_0", "0/state/x_3_0",
                          "0/state/x_6_0", "0/state/x_9_0"));
  fs::remove(folder / "s" / "0" / "state" / "x_9_0");
  const Leaf leaf = std::get<Leaf>(tree["state"].get("x"));
  std::vector<float> middle(5);
  leaf.read(4 * 5, std::as_writable_bytes(std::span(middle)));
  EXPECT_THAT(middle, ElementsAre(5, 6, 7, 8, 9));
  EXPECT_EQ(thrown_by([&] { leaf.tensor(); }).code, ErrorCode::corrupt);
}

TEST(Snapshot, StoresSmallTensorsInSlabsOfLimitedSize) {
  TensorDict root = node_of(NodeKind::dict);
  for (int i = 0; i < 10; ++i) root.set(std::to_string(i), counting({16}, static_cast<float>(i)));
  const TemporaryFolder folder;
  const TensorDict tree = saved_and_opened(root, folder / "s", {.slab_bytes = 200});
  EXPECT_EQ(difference(root, tree), "");
  EXPECT_THAT(files_below(folder / "s"),
              ElementsAre("%checksums", ".snapshot_metadata", "batched/0", "batched/1", "batched/2",
                          "batched/3"));
}

Leaf leaf_of(DType dtype) { return {Tensor::zeros(dtype, {3})}; }

TEST(Snapshot, KeepsObjectsThatOnlyTorchSaveCanStore) {
  const TemporaryFolder folder;
  TensorDict state = node_of(NodeKind::dict);
  for (const DType dtype : all_dtypes()) state.set(to_string(dtype), leaf_of(dtype));
  TensorDict tuple = node_of(NodeKind::tuple);
  tuple.set("0", counting({2}));
  tuple.set("1", Value(Value::List{{Value(), Value("text")}}));
  state.set("tuple", tuple);
  state.set("none", Value());
  state.set("betas", Value(Value::Tuple{{Value(0.9), Value(Value::Tuple{})}}));
  state.set("inside", Value(Value::Object{{{"a", Value()}, {"b", Value(Value::Tuple{})}}}));
  TensorDict root = node_of(NodeKind::dict);
  root.set("state", state);
  EXPECT_EQ(difference(root, saved_and_opened(root, folder / "s")), "");
}

TEST(Snapshot, KeepsEqualObjectsInOneFile) {
  const TemporaryFolder folder;
  TensorDict root = node_of(NodeKind::dict);
  for (const char* key : {"a", "b", "c"}) root.set(key, Value());
  root.set("d", Value(Value::Tuple{}));
  EXPECT_EQ(difference(root, saved_and_opened(root, folder / "s")), "");
  EXPECT_THAT(files_below(folder / "s"),
              ElementsAre("%checksums", ".snapshot_metadata", "0/a", "0/d"));
}

TEST(Snapshot, KeepsTensorDicts) {
  const TemporaryFolder folder;
  NodeInfo info;
  info.batch_size = {2};
  info.names = {"time"};
  TensorDict inner(info);
  inner.set("x", counting({2, 3}));
  TensorDict root(NodeInfo{});
  root.set("inner", inner);
  root.set("text", Value("x"));
  const TensorDict tree = saved_and_opened(root, folder / "s");
  EXPECT_EQ(difference(root, tree), "");
  EXPECT_THAT(tree["inner"].info().names, ElementsAre("time"));
  EXPECT_TRUE(fs::exists(folder / "s" / "%notes.json"));
  EXPECT_EQ(difference(sample_state_dict(), saved_and_opened(sample_state_dict(), folder / "s")),
            "");
}

TEST(Snapshot, StoresZeroElementsWithoutAFile) {
  const TemporaryFolder folder;
  const TensorDict tree = state_of(Leaf(counting({3, 0, 2})));
  EXPECT_EQ(difference(tree, saved_and_opened(tree, folder / "s")), "");
  EXPECT_THAT(files_below(folder / "s"), ElementsAre("%checksums", ".snapshot_metadata"));
}

TEST(Snapshot, NamesFilesByKeysIfTheyAreValidNames) {
  TensorDict state = node_of(NodeKind::dict);
  for (const std::string& key : {std::string("w"), std::string(".."), std::string("a/b"),
                                 std::string(), std::string(300, 'x')}) {
    state.set(key, counting({4}));
  }
  TensorDict root = node_of(NodeKind::dict);
  root.set("state", state);
  const TemporaryFolder folder;
  const TensorDict tree = saved_and_opened(root, folder / "s", {.slab_bytes = 1});
  EXPECT_EQ(difference(root, tree), "");
  EXPECT_THAT(files_below(folder / "s"),
              ElementsAre("%checksums", ".snapshot_metadata", "0/%n0", "0/%n1", "0/%n2",
                          "0/state/a%2Fb", "0/state/w"));
}

TEST(Snapshot, ChunksNeverGetTheNameOfAnotherTensor) {
  TensorDict root = node_of(NodeKind::dict);
  root.set("x", counting({4}));
  root.set("x_0", counting({2}, 10));
  root.set("x_2", counting({2}, 20));
  const TemporaryFolder folder;
  const SnapshotOptions options{.slab_bytes = 1, .chunk_bytes = 8};
  EXPECT_EQ(difference(root, saved_and_opened(root, folder / "s", options)), "");
}

TEST(Snapshot, MarksMatchesOfTheGlobsAsReplicated) {
  SnapshotOptions options;
  options.slab_bytes = 1;
  options.replicated = {"model/*"};
  const snapshot::Plan plan = snapshot::plan_snapshot(sample_checkpoint(), options);
  const snapshot::Entry* bias = plan.manifest.find("0/model/head.bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_TRUE(bias->tensor.replicated);
  EXPECT_EQ(bias->tensor.location, "replicated/model/head.bias");
  EXPECT_FALSE(plan.manifest.find("0/optimizer/lr")->tensor.replicated);
}

TEST(Snapshot, RefusesUnsupportedEntriesByKeyAndWritesNothing) {
  const TemporaryFolder folder;
  const Tensor lengths = Tensor::from(std::span<const std::int64_t>(std::vector<std::int64_t>{2}));
  const Leaf nested = Leaf::nested(counting({2}), Tensor(DType::int64, {1, 1}, lengths.buffer()));
  const Thrown thrown = thrown_by([&] { save_snapshot(state_of(nested), folder / "s"); });
  EXPECT_EQ(thrown.code, ErrorCode::unsupported);
  EXPECT_THAT(thrown.message,
              StartsWith((folder / "s").string() + ": key \"state.x\": a nested tensor"));
  EXPECT_FALSE(fs::exists(folder / "s"));
}

TEST(Snapshot, RefusesATensorWithoutAName) {
  const TemporaryFolder folder;
  const TensorDict bare = open(save_value(counting({2}), folder / "x.npy"));
  const Thrown thrown = thrown_by([&] { save_snapshot(bare, folder / "s"); });
  EXPECT_EQ(thrown.code, ErrorCode::unsupported);
  EXPECT_THAT(thrown.message, HasSubstr("cannot hold a value without a name"));
}

TEST(Snapshot, ReplacesASnapshotButNothingElse) {
  const TemporaryFolder folder;
  save_snapshot(sample_checkpoint(), folder / "s");
  EXPECT_EQ(difference(sample_state_dict(), saved_and_opened(sample_state_dict(), folder / "s")),
            "");
  std::ofstream(folder / "s" / "batched" / "notes.txt") << "mine";
  const Thrown thrown = thrown_by([&] { save_snapshot(sample_checkpoint(), folder / "s"); });
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
  EXPECT_THAT(thrown.message, HasSubstr("found \"batched/notes.txt\""));
  EXPECT_EQ(thrown_by([&] { save_snapshot({}, folder / "s", {.overwrite = false}); }).system_errno,
            EEXIST);
}

TEST(Snapshot, VerifyDetectsAFlippedBitInEveryFile) {
  const TemporaryFolder folder;
  save_snapshot(sample_checkpoint(), folder / "s", {.slab_bytes = 40});
  for (const std::string& name : files_below(folder / "s")) {
    const Path path = folder / "s" / name;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(5);
    const char before = static_cast<char>(file.get());
    file.seekp(5);
    file.put(static_cast<char>(before ^ 4));
    file.flush();
    EXPECT_FALSE(snapshot::kFormat.verify(folder / "s", {}).ok()) << name;
    file.seekp(5);
    file.put(before);
    file.flush();
    EXPECT_TRUE(snapshot::kFormat.verify(folder / "s", {}).ok()) << name;
  }
}

TEST(Snapshot, RefusesModeWriteThrough) {
  const TemporaryFolder folder;
  save_snapshot(sample_checkpoint(), folder / "s");
  EXPECT_EQ(thrown_by([&] { snapshot::kFormat.open(folder / "s", {Mode::write_through}); }).code,
            ErrorCode::unsupported);
}

}  // namespace
}  // namespace tenfold::test
