#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>
#include <tenfold/diff.hpp>
#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/read_boxes.hpp>
#include <tenfold/sharded_writer.hpp>

#include "base/hash/checksum.hpp"
#include "checkpoint/checked_copy.hpp"
#include "formats/safetensors/tree.hpp"
#include "formats/shared/hub_index.hpp"
#include "formats/shared/json_checksums.hpp"
#include "os/fs/change_observer.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/fs/file_system.hpp"
#include "os/process.hpp"
#include "support/crash_harness.hpp"
#include "support/files.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"
#include "support/watch_changes.hpp"

namespace tenfold::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

Tensor numbered(DType dtype, Shape shape, int start = 0) {
  Tensor tensor = Tensor::zeros(dtype, std::move(shape));
  std::byte* bytes = tensor.mutable_raw_data();
  for (std::uint64_t i = 0; i < tensor.nbytes(); ++i) {
    bytes[i] = static_cast<std::byte>((i * 7 + static_cast<std::uint64_t>(start)) & 63U);
  }
  return tensor;
}

/// Returns a view of a box of the tensor.
Tensor cut(const Tensor& tensor, const Shape& offsets, const Shape& sizes) {
  std::uint64_t offset = tensor.offset_bytes();
  if (tensor.numel() == 0)
    return {tensor.dtype(), sizes, tensor.strides(), tensor.buffer(), offset};
  for (std::size_t d = 0; d < offsets.size(); ++d) {
    offset += static_cast<std::uint64_t>(offsets[d] * tensor.strides()[d]) * tensor.itemsize();
  }
  return {tensor.dtype(), sizes, tensor.strides(), tensor.buffer(), offset};
}

TensorDict dict() {
  NodeInfo info;
  info.kind = NodeKind::dict;
  return TensorDict(info);
}

/// Returns the tensors of a tree, so that ShardBox::tensor is an index of the result.
std::vector<Tensor> tensors_of(const TensorDict& tree) {
  std::vector<Tensor> tensors;
  tree.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
    if (const auto* leaf = std::get_if<Leaf>(&item)) tensors.push_back(leaf->tensor());
  });
  return tensors;
}

struct Save {
  TensorDict tree;
  std::vector<ShardBox> boxes;
  ShardedWriteOptions options{.durable = false};
};

/// Writes the part of one rank, and passes `values` to the coordinator if they are given.
std::string write_part(const ShardedWriter& writer, const Save& save, int rank,
                       const TensorDict* values = nullptr, int num_threads = 1) {
  const std::vector<Tensor> tensors = tensors_of(save.tree);
  std::vector<Tensor> parts;
  for (const ShardBox& box : save.boxes) {
    if (box.rank == rank) parts.push_back(cut(tensors[box.tensor], box.offsets, box.sizes));
  }
  ShardWriter part(writer.ticket(rank));
  if (values != nullptr) part.add_values(*values, num_threads);
  part.write(0, parts, num_threads);
  return part.finish();
}

void run(const Save& save, const Path& path, int num_ranks = 2) {
  ShardedWriter writer(path, save.tree, save.boxes, save.options);
  std::vector<std::string> receipts;
  for (int rank = 0; rank < num_ranks; ++rank) receipts.push_back(write_part(writer, save, rank));
  writer.publish(receipts, save.tree);
}

/// Tensors of many dtypes and shapes, split by rows, by columns and as grids.
Save rich_save() {
  Save save{dict(), {}};
  TensorDict model = dict();
  model.set("rows", numbered(DType::float32, {10, 6}));
  model.set("columns", numbered(DType::bfloat16, {64, 40}, 3));
  model.set("grid", numbered(DType::float8_e4m3fn, {7, 5, 3}, 5));
  model.set("scalar", numbered(DType::complex64, {}, 9));
  model.set("empty", numbered(DType::int64, {4, 0}));
  save.tree.set("model", model);
  save.tree.set("step", Value(7));
  TensorDict list(NodeInfo{.kind = NodeKind::list});
  list.set("0", numbered(DType::uint8, {3'000'001}, 1));
  list.set("1", Value("text"));
  save.tree.set("list", list);
  save.boxes = {
      {0, {0, 0}, {3, 6}, 0},
      {0, {3, 0}, {7, 6}, 1},  // uneven rows
      {1, {0, 0}, {64, 13}, 0},
      {1, {0, 13}, {64, 27}, 1},  // columns
      {2, {0, 0, 0}, {7, 2, 3}, 1},
      {2, {0, 2, 0}, {2, 3, 3}, 0},  // a grid
      {2, {2, 2, 0}, {5, 3, 2}, 1},
      {2, {2, 2, 2}, {5, 3, 1}, 0},
      {3, {}, {}, 0},
      {3, {}, {}, 1},          // replicated
      {4, {0, 0}, {4, 0}, 0},  // without elements
      {5, {0}, {1'500'000}, 1},
      {5, {1'500'000}, {1'500'001}, 0},
      {5, {0}, {0}, 1},
  };
  return save;
}

/// Returns the layout for a test parameter. "shards" and "torch" are layouts. Any other name is
/// that of a file or folder in the plain layout; "index" is a folder with an index and its shards.
ShardLayout layout_of(const std::string& name) {
  if (name == "shards") return ShardLayout::shards;
  return name == "torch" ? ShardLayout::torch : ShardLayout::plain;
}

Save laid_out(Save save, const std::string& name) {
  save.options.layout = layout_of(name);
  if (name == "index") save.options.shard_size_bytes = 20;
  return save;
}

/// Returns the path to which a test saves: the index in the folder if `path` is "index", otherwise
/// `path`.
Path target_of(const Path& path) {
  return path.filename() == "index" ? path / "m.safetensors.index.json" : path;
}

/// Returns the names of the files in `folder` that the index in it does not name.
std::string files_beside_index(const fs::path& folder) {
  const Path index = folder / "m.safetensors.index.json";
  std::vector<std::string> named = {index.filename().string()};
  if (fs::exists(index)) {
    const auto shards = detail::formats::parse_hub_index(read_bytes(index), index.string()).shards;
    named.insert(named.end(), shards.begin(), shards.end());
  }
  std::string names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (std::ranges::find(named, name) == named.end()) names += name + " ";
  }
  return names;
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  const std::string name = info.param;
  return name == "m.safetensors" ? "safetensors" : name;
}

class EveryLayout : public testing::TestWithParam<const char*> {
 protected:
  static Save rich() { return laid_out(rich_save(), GetParam()); }
  static bool is_index() { return GetParam() == std::string("index"); }
  Path path() const { return target_of(folder_ / GetParam()); }
  /// Returns the names in the folder. For "index", one more string lists the files in the folder
  /// "index" that the index does not name, if there are any.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename().string());
    }
    if (is_index()) {
      const std::string others = files_beside_index(folder_ / GetParam());
      if (!others.empty()) names.push_back(others);
    }
    return names;
  }
  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(ShardedWriter, EveryLayout,
                         testing::Values("m.safetensors", "index", "folder", "shards", "torch"),
                         test_name);

TEST_P(EveryLayout, HoldsTheSameTreeAsASaveOfOneProcess) {
  const Save save = rich();
  run(save, path());
  const VerifyReport report = verify(path());
  EXPECT_TRUE(report.ok()) << report.problems.at(0).what;
  EXPECT_GE(report.num_checksums, 9U);
  tenfold::save(save.tree, folder_ / "alone");
  const DiffReport difference = diff(path(), folder_ / "alone");
  EXPECT_TRUE(difference.same());
  EXPECT_EQ(open(path()).value("step"), Value(7));
  fs::remove_all(folder_ / "alone");
  EXPECT_THAT(names(), ElementsAre(GetParam()));  // nothing else remains
}

TEST_P(EveryLayout, ThePathOfAFolderMayEndWithASlash) {
  const Save save = rich();
  if (is_index() || path().extension() == ".safetensors") GTEST_SKIP() << "the layout is a file";
  run(save, path() / "");
  EXPECT_TRUE(verify(path()).ok());
  EXPECT_THAT(names(), ElementsAre(GetParam()));
}

TEST_P(EveryLayout, AFlippedBitOfAnyDataFileIsDetected) {
  const Save save = rich();
  run(save, path());
  const TensorDict tree = open(path());
  std::vector<fs::path> files = {path()};
  const Path folder = folder_ / GetParam();
  if (fs::is_directory(folder)) {
    files.clear();
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const fs::path suffix = entry.path().extension();
      if (suffix == ".memmap" || suffix == ".safetensors" || suffix == ".distcp") {
        files.push_back(entry.path());
      }
    }
    EXPECT_GE(files.size(), 3U);
  }
  for (const fs::path& file : files) {
    const std::string bytes = read_bytes(file);
    for (const std::size_t at : {bytes.size() - 1, bytes.size() / 2}) {
      std::string damaged = bytes;
      damaged[at] ^= 1;
      write_bytes(file, damaged);
      EXPECT_FALSE(verify(path()).ok()) << file << " " << at;
      EXPECT_THROW(load(path(), {.verify = true}), Error) << file << " " << at;
    }
    write_bytes(file, bytes);
  }
  EXPECT_TRUE(verify(path()).ok());
}

TEST_P(EveryLayout, OnlyTheLoadedBoxesAreVerified) {
  constexpr std::int64_t kHalf = 1 << 19;  // 17 rows of 1 MiB; a checksum covers at most 16 MiB
  Save save = laid_out({dict(), {{0, {0, 0}, {17, kHalf}, 0}, {0, {0, kHalf}, {17, kHalf}, 1}}},
                       GetParam());
  save.tree.set("w", numbered(DType::uint8, {17, 2 * kHalf}));
  run(save, path());
  const auto is_intact = [&](const Shape& offsets, const Shape& sizes) {
    const std::vector<BoxCheck> boxes = {{{"w"}, offsets, sizes}};
    return verify_boxes(path(), boxes).ok();
  };
  EXPECT_TRUE(is_intact({0, 0}, {17, 2 * kHalf}));
  // Damage a byte that rank 1 wrote. In the layout "torch", it is in the middle of the file of the
  // rank; otherwise it is in the last row of the tensor.
  std::string data;
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
    const std::string suffix = entry.path().extension().string();
    if (suffix == ".memmap" || suffix == ".safetensors" || suffix == ".distcp") {
      data = std::max(data, entry.path().string());
    }
  }
  std::string bytes = read_bytes(data);
  const std::size_t at = data.ends_with(".distcp") ? bytes.size() / 2 : bytes.size() - 1;
  bytes[at] ^= 1;
  write_bytes(data, bytes);
  EXPECT_FALSE(verify(path()).ok());
  EXPECT_FALSE(is_intact({0, 0}, {17, 2 * kHalf}));
  EXPECT_FALSE(is_intact({16, kHalf}, {1, 1}));
  EXPECT_FALSE(is_intact({0, 2 * kHalf - 1}, {17, 1}));
  if (save.options.layout == ShardLayout::plain) {
    EXPECT_TRUE(is_intact({0, 0}, {16, 2 * kHalf}));
  } else {
    EXPECT_TRUE(is_intact({0, 0}, {17, kHalf}));  // the file of rank 0 is undamaged
  }
}

TEST_P(EveryLayout, IsVerifiedBeforeItIsCopiedAsAnEntryOfAStep) {
  const Save save = rich();
  if (is_index() || save.options.layout != ShardLayout::plain) {
    GTEST_SKIP() << "an entry of a step is one file, or one folder in the plain layout";
  }
  run(save, path());
  CheckpointEntry entry;
  entry.path = GetParam();
  entry.format = fs::is_directory(path()) ? "memmap" : "safetensors";
  const auto copy = [&] {
    return std::get<TensorDict>(
        checkpoint::copy_entry(open(path()), folder_.path(), entry, true, 0, nullptr));
  };
  EXPECT_TRUE(diff(copy(), open(path())).same());
  const fs::path file = fs::is_directory(path()) ? path() / "model/columns.memmap" : path();
  std::string bytes = read_bytes(file);
  bytes.back() ^= 1;
  write_bytes(file, bytes);
  EXPECT_THROW(copy(), Error);
}

TEST_P(EveryLayout, DisabledChecksumsAreNotWritten) {
  Save save = rich();
  save.options.checksums = false;
  run(save, path());
  if (save.options.layout == ShardLayout::plain) {
    EXPECT_EQ(verify(path()).num_checksums, 0U);
  }
  EXPECT_TRUE(verify(path()).ok());
}

TEST_P(EveryLayout, ReplacesTheOldVersionOnlyWhenItIsPublished) {
  run(rich(), path());
  Save save = laid_out({dict(), {{0, {0}, {2}, 0}, {0, {2}, {2}, 1}}}, GetParam());
  save.tree.set("new", numbered(DType::int32, {4}));
  {
    ShardedWriter writer(path(), save.tree, save.boxes, save.options);
    write_part(writer, save, 0);
    write_part(writer, save, 1);
    EXPECT_TRUE(open(path()).contains("model"));
    EXPECT_TRUE(verify(path()).ok());
  }
  EXPECT_TRUE(open(path()).contains("model"));  // the new save was abandoned
  EXPECT_THAT(names(), ElementsAre(GetParam()));
  run(save, path());
  EXPECT_THAT(open(path()).keys(), ElementsAre("new"));
  EXPECT_THAT(names(), ElementsAre(GetParam()));
}

TEST_P(EveryLayout, ThreadsDoNotChangeTheFiles) {
  Save save = rich();
  save.tree.set("large", numbered(DType::uint8, {(17 << 20) + 5}, 1));  // more than one block
  save.boxes.push_back({6, {0}, {(17 << 20) + 5}, 0});
  std::vector<std::map<std::string, std::string>> files;
  for (const int num_threads : {1, 4}) {
    const Path folder = folder_ / std::to_string(num_threads);
    fs::create_directory(folder);
    const Path target = target_of(folder / GetParam());
    ShardedWriter writer(target, save.tree, save.boxes, save.options);
    const std::vector<std::string> receipts = {write_part(writer, save, 0, nullptr, num_threads),
                                               write_part(writer, save, 1, nullptr, num_threads)};
    writer.publish(receipts, save.tree);
    EXPECT_TRUE(verify(target).ok());
    EXPECT_TRUE(diff(open(target), save.tree).same());
    std::map<std::string, std::string>& found = files.emplace_back();
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      found[entry.path().lexically_relative(folder).string()] = read_bytes(entry.path());
    }
  }
  EXPECT_FALSE(files[0].empty());
  EXPECT_TRUE(files[0] == files[1]);
}

TEST_P(EveryLayout, WithoutEntriesIsAnEmptyTree) {
  run(laid_out({dict(), {}}, GetParam()), path());
  EXPECT_TRUE(verify(path()).ok());
  EXPECT_TRUE(open(path()).empty());
}

TEST_P(EveryLayout, ValuesMayBePassedToPublish) {
  Save save = rich();
  TensorDict later = rich().tree;
  // Longer than the space that value_bytes = 0 reserves, and shorter than that of 6000.
  later.set("step", Value(std::string(5000, 'x')));
  for (const std::uint64_t room : {std::uint64_t{0}, std::uint64_t{6000}}) {
    save.options.value_bytes = room;
    ShardedWriter writer(path(), save.tree, save.boxes, save.options);
    const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                               write_part(writer, save, 1)};
    writer.publish(receipts, later);
    EXPECT_TRUE(verify(path()).ok());
    EXPECT_EQ(open(path()).value("step"), Value(std::string(5000, 'x')));
    EXPECT_THAT(names(), ElementsAre(GetParam()));
  }
}

TEST_P(EveryLayout, ValuesThatAreNotPublishedLeaveNothing) {
  Save save = rich();
  TensorDict node = dict();
  node.set("inner", dict());
  save.tree.set("value", Value(1));
  save.tree.set("node", node);
  ShardedWriter writer(path(), save.tree, save.boxes, save.options);
  const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                             write_part(writer, save, 1)};
  writer.publish(receipts, rich().tree);
  EXPECT_FALSE(fs::exists(path() / "value"));
  EXPECT_FALSE(fs::exists(path() / "node"));
  run(rich(), path());  // an entry that the metadata does not name would be refused as foreign
  EXPECT_TRUE(verify(path()).ok());
}

TEST_P(EveryLayout, PublishRefusesTensorsThatWereNotPlanned) {
  const Save save = rich();
  ShardedWriter writer(path(), save.tree, save.boxes, save.options);
  const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                             write_part(writer, save, 1)};
  TensorDict renamed = rich().tree;
  renamed.set("more", numbered(DType::int32, {1}));
  if (save.options.layout != ShardLayout::plain) {
    EXPECT_THROW(writer.publish(receipts, renamed), Error);
  }
  renamed.set("list", Value("no tensors"));
  EXPECT_THROW(writer.publish(receipts, renamed), Error);
  TensorDict other = rich().tree;
  other.set("list", TensorDict(NodeInfo{.kind = NodeKind::list}));
  EXPECT_THROW(writer.publish(receipts, other), Error);
  EXPECT_THROW(writer.publish(receipts, dict()), Error);
  EXPECT_FALSE(fs::exists(path()));
  writer.publish(receipts, rich().tree);
  EXPECT_TRUE(verify(path()).ok());
}

TEST_P(EveryLayout, APublishThatFailedWhileItCreatedFilesIsNotRepeated) {
  const Save save = rich();
  ShardedWriter writer(path(), save.tree, save.boxes, save.options);
  const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                             write_part(writer, save, 1)};
  bool has_failed = false;
  {
    const WatchChanges watch([&](const os::Change& change) {
      if (change.kind != os::Change::Kind::create_file) return;
      has_failed = true;
      throw Error::io(ENOSPC, change.name, "cannot be created");
    });
    try {
      writer.publish(receipts);
    } catch (const Error& error) {
      EXPECT_EQ(error.system_errno(), ENOSPC);
    }
  }
  if (!has_failed) GTEST_SKIP() << "publish() creates no file in this layout";
  expect_error(ErrorCode::invalid_argument, "save again", [&] { writer.publish(receipts); });
  EXPECT_FALSE(fs::exists(path()));
}

TEST_P(EveryLayout, UnsupportedNodesAreRefusedByPathAndKey) {
  const Save save = rich();
  Save stacked = rich();
  stacked.tree.set("stack", TensorDict(NodeInfo{.kind = NodeKind::lazy_stack}));
  expect_error(ErrorCode::unsupported, path().string() + ": key \"stack\"",
               [&] { ShardedWriter(path(), stacked.tree, stacked.boxes, stacked.options); });
  ShardedWriter writer(path(), save.tree, save.boxes, save.options);
  const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                             write_part(writer, save, 1)};
  expect_error(ErrorCode::unsupported, path().string() + ": key \"stack\"",
               [&] { writer.publish(receipts, stacked.tree); });
  writer.publish(receipts, save.tree);
  EXPECT_TRUE(verify(path()).ok());
}

/// The layouts in which values may contain tensors.
class PlainLayout : public EveryLayout {
 protected:
  /// Returns a save whose first entry is a value, so that the tensors in this value precede the
  /// planned tensors in the tree.
  static Save with_value() {
    Save save = laid_out({dict(), rich_save().boxes}, GetParam());
    save.options.accepts_values = true;
    save.tree.set("value", Value());
    copy_into(save.tree);
    return save;
  }
  /// The value that a rank passes: a tuple with tensors, one of which has several checksum blocks.
  static TensorDict value(int start) {
    TensorDict deep = dict();
    deep.set("large", numbered(DType::uint8, {17'000'001}, start));
    deep.set("empty", numbered(DType::float32, {0, 3}));
    TensorDict tuple(NodeInfo{.kind = NodeKind::tuple});
    tuple.set("0", cut(numbered(DType::int16, {6, 4}, start), {1, 1}, {4, 2}));
    tuple.set("1", Value("text"));
    tuple.set("2", deep);
    tuple.set("3", numbered(DType::bfloat16, {}, start));
    return tuple;
  }
  static TensorDict named(const TensorDict& value) {
    TensorDict values = dict();
    values.set("value", value);
    return values;
  }
  /// The tree to publish after a rank has passed `value`.
  static TensorDict later(const TensorDict& value) {
    TensorDict tree = named(value);
    copy_into(tree);
    return tree;
  }

 private:
  static void copy_into(TensorDict& tree) {
    rich_save().tree.for_each(
        [&](const std::string& key, const TensorDict::Item& item) { tree.set(key, item); });
  }
};
INSTANTIATE_TEST_SUITE_P(ShardedWriter, PlainLayout,
                         testing::Values("m.safetensors", "index", "folder"), test_name);

TEST_P(PlainLayout, TensorsInValuesAreWrittenAfterThePlannedOnes) {
  const Save save = with_value();
  const TensorDict values = named(value(1));
  ShardedWriter writer(path(), save.tree, save.boxes, save.options);
  const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                             write_part(writer, save, 1, &values)};
  EXPECT_THROW(static_cast<void>(writer.values(0)), Error);  // rank 0 has passed none
  writer.publish(receipts, later(std::get<TensorDict>(writer.values(1).get("value"))));
  EXPECT_THAT(names(), ElementsAre(GetParam()));
  const VerifyReport report = verify(path());
  EXPECT_TRUE(report.ok()) << report.problems.at(0).what;
  tenfold::save(later(value(1)), folder_ / "alone");
  EXPECT_TRUE(diff(path(), folder_ / "alone").same());
  fs::remove_all(folder_ / "alone");

  Path file = path();
  if (is_index()) file = folder_ / "index" / "m-00003-of-00003-values.safetensors";
  if (fs::is_directory(path())) file = path() / "value" / "3.memmap";
  std::string bytes = read_bytes(file);
  const Tensor last = numbered(DType::bfloat16, {}, 1);
  EXPECT_EQ(bytes.substr(bytes.size() - 2),
            std::string(reinterpret_cast<const char*>(last.raw_data()), 2));
  bytes.back() ^= 1;
  write_bytes(file, bytes);
  EXPECT_FALSE(verify(path()).ok());
}

TEST_P(PlainLayout, EachRankMayPassValues) {
  Save save = with_value();
  save.options.durable = true;
  save.options.checksums = false;
  ShardedWriter writer(path(), save.tree, save.boxes, save.options);
  std::vector<std::string> receipts;
  TensorDict all(NodeInfo{.kind = NodeKind::list});
  for (int rank = 0; rank < 2; ++rank) {
    const TensorDict values = named(value(rank));
    receipts.push_back(write_part(writer, save, rank, &values));
    all.set(std::to_string(rank), writer.values(rank).get("value"));
  }
  writer.publish(receipts, later(all));
  TensorDict expected(NodeInfo{.kind = NodeKind::list});
  for (int rank = 0; rank < 2; ++rank) expected.set(std::to_string(rank), value(rank));
  tenfold::save(later(expected), folder_ / "alone");
  EXPECT_TRUE(diff(path(), folder_ / "alone").same());
  EXPECT_TRUE(verify(path()).ok());
}

TEST_P(PlainLayout, ATensorAtTheRootMayBeAdded) {
  Save save = laid_out({dict(), {{0, {0}, {2}, 0}, {0, {2}, {2}, 1}}}, GetParam());
  save.tree.set("b", numbered(DType::int8, {4}));
  ShardedWriter writer(path(), save.tree, save.boxes, save.options);
  const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                             write_part(writer, save, 1)};
  TensorDict later = dict();
  later.set("a", numbered(DType::float64, {2}));  // precedes "b" in safetensors files
  later.set("b", numbered(DType::int8, {4}));
  later.set("c", numbered(DType::int8, {3}));
  writer.publish(receipts, later);
  EXPECT_TRUE(verify(path()).ok());
  EXPECT_THAT(open(path()).keys(), ElementsAre("a", "b", "c"));
  tenfold::save(later, folder_ / "alone");
  EXPECT_TRUE(diff(path(), folder_ / "alone").same());
}

TEST_P(PlainLayout, UnsupportedTensorsInValuesAreRefusedByKeyWhenTheyArePassed) {
  const Save save = with_value();
  ShardedWriter writer(path(), save.tree, save.boxes, save.options);
  const auto refusal = [&](const TensorDict::Item& item) {
    TensorDict tuple(NodeInfo{.kind = NodeKind::tuple});
    tuple.set("0", item);
    ShardWriter part(writer.ticket(0));
    try {
      part.add_values(named(tuple));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      return std::string(error.what());
    }
    return std::string();
  };
  NodeInfo stack;
  stack.kind = NodeKind::lazy_stack;
  EXPECT_THAT(refusal(TensorDict(stack)), HasSubstr("\"value.0\""));
  const std::string complex = refusal(Leaf(numbered(DType::complex128, {2})));
  if (GetParam() == std::string("folder")) {
    EXPECT_EQ(complex, "");
  } else {
    EXPECT_THAT(complex, HasSubstr("\"value.0\""));
  }
}

TEST_P(PlainLayout, LeftoverValuesOfACrashedCoordinatorAreRemovedByTheNextSave) {
  const Save save = with_value();
  EXPECT_EXIT(
      {
        const TensorDict values = named(value(1));
        ShardedWriter writer(path(), save.tree, save.boxes, save.options);
        write_part(writer, save, 1, &values);
        std::_Exit(3);
      },
      testing::ExitedWithCode(3), "");
  EXPECT_THAT(names(), Not(IsEmpty()));
  run(save, path());
  EXPECT_THAT(names(), ElementsAre(GetParam()));
}

TEST_P(EveryLayout, ValuesAreRefusedUnlessTheSaveAcceptsThem) {
  Save save = rich();
  save.options.accepts_values = save.options.layout != ShardLayout::plain;
  ShardedWriter writer(path(), save.tree, save.boxes, save.options);
  ShardWriter part(writer.ticket(0));
  try {
    part.add_values(dict());
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("expected a save in the plain layout that accepts values"));
  }
  EXPECT_THROW(static_cast<void>(writer.values(0)), Error);
}

TEST_P(EveryLayout, AFullDiskOfOneRankLeavesTheOldVersion) {
  Save save = rich();
  run(save, path());
  ShardedWriter writer(path(), save.tree, save.boxes, save.options);
  const std::string first = write_part(writer, save, 0);
  {
    const WatchChanges full([](const os::Change& change) {
      if (change.kind == os::Change::Kind::write) throw Error::io(ENOSPC, "m", "cannot be written");
    });
    EXPECT_THROW(write_part(writer, save, 1), Error);
  }
  const std::vector<std::string> receipts = {first};
  try {
    writer.publish(receipts, save.tree);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("tensor \"model.rows\": expected a receipt for its "
                                              "box at [3, 0] of shape [7, 6] of rank 1, found "
                                              "none")));
  }
  EXPECT_TRUE(verify(path()).ok());
}

TEST_P(EveryLayout, AfterAFailedSyncThereIsNoReceiptUntilTheBoxesAreWrittenAgain) {
  Save save = rich();
  save.options.durable = true;
  ShardedWriter writer(path(), save.tree, save.boxes, save.options);
  const std::vector<Tensor> tensors = tensors_of(save.tree);
  std::vector<Tensor> parts;
  for (const ShardBox& box : save.boxes) {
    if (box.rank == 0) parts.push_back(cut(tensors[box.tensor], box.offsets, box.sizes));
  }
  ShardWriter part(writer.ticket(0));
  part.write(0, parts, 1);
  {
    const WatchChanges watch([](const os::Change& change) {
      if (change.kind == os::Change::Kind::sync_file) throw Error::io(EIO, "m", "cannot be synced");
    });
    EXPECT_THROW(part.finish(), Error);
  }
  // The kernel reports the failure of a sync only once, so the writer must remember it.
  EXPECT_THROW(part.finish(), Error);
  part.write(0, parts, 1);
  const std::vector<std::string> receipts = {part.finish(), write_part(writer, save, 1)};
  writer.publish(receipts, save.tree);
  EXPECT_TRUE(verify(path()).ok());
}

TEST_P(EveryLayout, StaleTicketsAndReceiptsAreRefused) {
  const Save save = rich();
  std::string old_ticket;
  std::string old_receipt;
  {
    ShardedWriter writer(path(), save.tree, save.boxes, save.options);
    old_ticket = writer.ticket(0);
    old_receipt = write_part(writer, save, 0);
  }
  try {
    ShardWriter part(old_ticket);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 on host"), HasSubstr("found none")));
  }
  ShardedWriter writer(path(), save.tree, save.boxes, save.options);
  try {
    ShardWriter part(old_ticket);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("found those of another save"));
  }
  const std::vector<std::string> receipts = {old_receipt, write_part(writer, save, 1)};
  EXPECT_THROW(writer.publish(receipts), Error);
  EXPECT_FALSE(fs::exists(path()));
}

/// Values of `f_type`, from statfs(2).
constexpr std::uint32_t kNfs = 0x6969;
constexpr std::uint32_t k9p = 0x01021997;
constexpr std::uint32_t kFuse = 0x65735546;
constexpr std::uint32_t kSmb = 0xFE534D42;
constexpr std::uint32_t kLustre = 0x0BD00BD0;
constexpr std::uint32_t kGpfs = 0x47504653;
constexpr std::uint32_t kXfs = 0x58465342;

/// While this object exists, every file seems to be on the file system with the magic number
/// `magic`.
class OnFileSystem {
 public:
  explicit OnFileSystem(std::uint32_t magic) : before_(os::set_file_system(magic)) {}
  ~OnFileSystem() { os::set_file_system(before_); }
  OnFileSystem(const OnFileSystem&) = delete;
  OnFileSystem& operator=(const OnFileSystem&) = delete;

 private:
  std::optional<std::uint32_t> before_;
};

/// While this object exists, this process seems to run on another host.
class OnAnotherHost {
 public:
  OnAnotherHost() : before_(os::set_boot_id(os::BootId{std::byte{7}})) {}
  ~OnAnotherHost() { os::set_boot_id(before_); }
  OnAnotherHost(const OnAnotherHost&) = delete;
  OnAnotherHost& operator=(const OnAnotherHost&) = delete;

 private:
  std::optional<os::BootId> before_;
};

TEST_P(EveryLayout, OneHostMayWriteOnAnyFileSystem) {
  const Save save = rich();
  for (const std::uint32_t magic : {kNfs, k9p, kFuse, kSmb, kLustre, kGpfs, kXfs}) {
    const OnFileSystem file_system(magic);
    run(save, path());
    EXPECT_TRUE(verify(path()).ok()) << magic;
  }
}

TEST_P(EveryLayout, SeveralHostsMayWriteOneFileOnLustreGpfsAndXfs) {
  const Save save = rich();
  for (const std::uint32_t magic : {kLustre, kGpfs, kXfs}) {
    const OnFileSystem file_system(magic);
    ShardedWriter writer(path(), save.tree, save.boxes, save.options);
    std::vector<std::string> receipts = {write_part(writer, save, 0)};
    {
      const OnAnotherHost host;
      receipts.push_back(write_part(writer, save, 1));
    }
    writer.publish(receipts, save.tree);
    EXPECT_TRUE(verify(path()).ok()) << magic;
  }
}

TEST_P(EveryLayout, SeveralHostsOnNfs9pFuseOrSmbNeedSeparateFiles) {
  const Save save = rich();
  for (const std::uint32_t magic : {kNfs, k9p, kFuse, kSmb}) {
    const OnFileSystem file_system(magic);
    ShardedWriter writer(path(), save.tree, save.boxes, save.options);
    std::vector<std::string> receipts = {write_part(writer, save, 0)};
    {
      const OnAnotherHost host;
      if (save.options.layout != ShardLayout::plain) {
        receipts.push_back(write_part(writer, save, 1));
      } else {
        try {
          write_part(writer, save, 1);
          FAIL() << "written on " << magic;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::unsupported);
          EXPECT_THAT(error.what(),
                      AllOf(HasSubstr("rank 1 on host"), HasSubstr("found NFS, 9p, SMB or FUSE"),
                            HasSubstr("use the layout \"shards\"")));
        }
        continue;
      }
    }
    writer.publish(receipts, save.tree);
    EXPECT_TRUE(verify(path()).ok()) << magic;
  }
  EXPECT_EQ(fs::exists(path()), save.options.layout != ShardLayout::plain);
}

TEST_P(EveryLayout, LeftoversOfACrashedCoordinatorAreRemovedByTheNextSave) {
  const Save save = rich();
  EXPECT_EXIT(
      {
        ShardedWriter writer(path(), save.tree, save.boxes, save.options);
        write_part(writer, save, 0);
        std::_Exit(3);
      },
      testing::ExitedWithCode(3), "");
  EXPECT_THAT(names(), Not(IsEmpty()));
  run(save, path());
  EXPECT_THAT(names(), ElementsAre(GetParam()));
}

TEST_P(EveryLayout, AShardSizeNeedsAnIndex) {
  if (is_index()) GTEST_SKIP() << "this layout has an index";
  Save save = rich();
  save.options.shard_size_bytes = 20;
  try {
    ShardedWriter writer(path(), save.tree, save.boxes, save.options);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("only an index of shards has a shard size"));
  }
  EXPECT_THAT(names(), IsEmpty());
}

/// Two tensors of the same dtype and shape.
Save two_tensors() {
  Save save = laid_out({dict(), {{0, {0}, {6}, 0}, {1, {0}, {6}, 1}}}, "index");
  save.tree.set("b", numbered(DType::float32, {6}));
  save.tree.set("a", numbered(DType::float32, {6}, 3));
  return save;
}

TEST(IndexLayout, HasTheNamesAndSizesOfASaveOfOneProcess) {
  const TemporaryFolder folder;
  const Save save = two_tensors();
  const auto names_in = [](const Path& path) {
    std::vector<std::pair<std::string, std::uint64_t>> names;
    for (const auto& entry : fs::directory_iterator(path.parent_path())) {
      names.emplace_back(entry.path().filename().string(), entry.file_size());
    }
    std::ranges::sort(names);
    return names;
  };
  run(save, folder / "ours" / "m.safetensors.index.json");
  tenfold::save(save.tree, folder / "m.safetensors");
  convert(folder / "m.safetensors", folder / "alone" / "m.safetensors.index.json",
          {.shard_size_bytes = save.options.shard_size_bytes});
  EXPECT_EQ(names_in(folder / "ours" / "x"), names_in(folder / "alone" / "x"));
  // Shards are filled in the order of the keys, and each can be opened and verified without the
  // index.
  const Path first = folder / "ours" / "m-00001-of-00002.safetensors";
  EXPECT_THAT(open(first).keys(), ElementsAre("b"));
  EXPECT_TRUE(verify(first).ok());
  EXPECT_EQ(verify(first).num_checksums, 2U);  // of the header and the box
}

TEST(IndexLayout, TheOldVersionCanBeReadUntilTheIndexIsReplaced) {
  const TemporaryFolder folder;
  const Path path = folder / "m.safetensors.index.json";
  Save save = two_tensors();
  run(save, path);
  const TensorDict old = open(path);
  save.tree.set("a", numbered(DType::float32, {6}, 20));
  ShardedWriter writer(path, save.tree, save.boxes, save.options);
  const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                             write_part(writer, save, 1)};
  EXPECT_TRUE(diff(open(path), two_tensors().tree).same());
  EXPECT_TRUE(verify(path).ok());
  writer.publish(receipts);
  EXPECT_TRUE(diff(open(path), save.tree).same());
  EXPECT_FALSE(diff(old, save.tree).same());  // an open tree keeps the old version
  EXPECT_EQ(files_beside_index(folder.path()), "");
}

TEST(IndexLayout, ForeignFilesWithTheNamesOfShardsAreNotReplaced) {
  const TemporaryFolder folder;
  const Path path = folder / "m.safetensors.index.json";
  write_bytes(folder / "m-00002-of-00002.safetensors", "mine");
  run(two_tensors(), path);
  EXPECT_EQ(read_bytes(folder / "m-00002-of-00002.safetensors"), "mine");
  EXPECT_TRUE(diff(open(path), two_tensors().tree).same());
}

/// Replaces the staged shards by other files, as a second coordinator would.
void replace_shards(const Path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string bytes = read_bytes(entry.path());
    write_bytes(entry.path(), std::string(bytes.size(), 'x'));
  }
}

TEST(IndexLayout, AShardOfAnotherSaveIsNotWritten) {
  const TemporaryFolder folder;
  const Path path = folder / "index" / "m.safetensors.index.json";
  const Save save = two_tensors();
  ShardedWriter writer(path, save.tree, save.boxes, save.options);
  ShardWriter late(writer.ticket(1));
  replace_shards(folder / "index");
  const std::vector<Tensor> tensors = {numbered(DType::float32, {6})};
  try {
    late.write(0, tensors);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), HasSubstr("found those of another save"));
  }
  ShardedWriter second(folder / "other" / "m.safetensors.index.json", save.tree, save.boxes,
                       save.options);
  const std::vector<std::string> receipts = {write_part(second, save, 0),
                                             write_part(second, save, 1)};
  replace_shards(folder / "other");
  try {
    second.publish(receipts);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), HasSubstr("expected the shard that this save created"));
  }
  for (const Path& of : {folder / "index", folder / "other"}) {
    for (const auto& entry : fs::directory_iterator(of)) {
      if (entry.path().extension() != ".safetensors") continue;
      EXPECT_THAT(read_bytes(entry.path()), testing::Each('x')) << entry;
    }
  }
}

/// The names of the files in a folder, sorted.
std::vector<std::string> files_in(const Path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

/// Returns the tree of two_tensors(), preceded by a value that contains an unplanned tensor of
/// `size` elements.
TensorDict with_tensor_in_value(std::int64_t size) {
  TensorDict tree = dict();
  TensorDict value = dict();
  value.set("x", numbered(DType::int32, {size}));
  tree.set("value", value);
  two_tensors().tree.for_each(
      [&](const std::string& key, const TensorDict::Item& item) { tree.set(key, item); });
  return tree;
}

TEST(FolderLayout, WarnsOfFloat8InAValueThatIsOnlyPublished) {
  const TemporaryFolder folder;
  Save save = two_tensors();
  save.options.shard_size_bytes = 0;
  TensorDict later = two_tensors().tree;
  later.set("scale", numbered(DType::float8_e4m3fn, {3}));
  ShardedWriter writer(folder / "d", save.tree, save.boxes, save.options);
  const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                             write_part(writer, save, 1)};
  const Warnings warnings;
  writer.publish(receipts, later);
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("tensor \"scale\": tensordict")));
}

TEST(TorchLayout, AnEmptyKeyIsAPartOfJoinedNames) {
  const TemporaryFolder folder;
  Save save{dict(), {{0, {0}, {4}, 0}}};
  save.options.layout = ShardLayout::torch;
  TensorDict node = dict();
  node.set("n", Value(1));
  save.tree.set("", node);
  save.tree.set("n", numbered(DType::int32, {4}));
  run(save, folder / "d", 1);
  EXPECT_TRUE(diff(open(folder / "d"), save.tree).same());
}

TEST(IndexLayout, TensorsInValuesHaveShardsThatTheNextSaveRemoves) {
  const TemporaryFolder folder;
  const Path path = folder / "m.safetensors.index.json";
  const Save save = two_tensors();
  for (int i = 0; i < 3; ++i) {
    ShardedWriter writer(path, save.tree, save.boxes, save.options);
    const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                               write_part(writer, save, 1)};
    writer.publish(receipts, with_tensor_in_value(3));
    EXPECT_TRUE(diff(open(path), with_tensor_in_value(3)).same());
    EXPECT_TRUE(verify(path).ok());
    EXPECT_EQ(files_beside_index(folder.path()), "");
    if (i > 0) continue;
    EXPECT_THAT(files_in(folder.path()),
                ElementsAre("m-00001-of-00001-values.safetensors", "m-00001-of-00002.safetensors",
                            "m-00002-of-00002.safetensors", "m.safetensors.index.json"));
  }
  EXPECT_TRUE(verify(path).ok());
  run(save, path);
  EXPECT_EQ(files_in(folder.path()).size(), 3U);
  EXPECT_EQ(files_beside_index(folder.path()), "");
}

TEST(IndexLayout, AFailureWhileTensorsInValuesAreWrittenKeepsTheOldVersion) {
  const TemporaryFolder folder;
  const Path path = folder / "m.safetensors.index.json";
  const Save save = two_tensors();
  run(save, path);
  {
    ShardedWriter writer(path, save.tree, save.boxes, save.options);
    const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                               write_part(writer, save, 1)};
    {
      const WatchChanges watch([](const os::Change& change) {
        if (change.kind == os::Change::Kind::create_file) {
          throw Error::io(ENOSPC, change.name, "cannot be created");
        }
      });
      EXPECT_THROW(writer.publish(receipts, with_tensor_in_value(3)), Error);
    }
    try {
      writer.publish(receipts, with_tensor_in_value(3));
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("save again"));
    }
  }
  EXPECT_TRUE(diff(open(path), save.tree).same());
  EXPECT_EQ(files_beside_index(folder.path()), "");
}

/// Plans tensors with the keys "v.<name>" and `other`, and publishes them with a value "v" that
/// contains a tensor <name>. Two tensors then have the dotted name "v.<name>". Returns false if
/// publish() refuses this.
bool publish_same_name(const Path& path, const std::string& name, const std::string& other) {
  Save save = laid_out({dict(), {{0, {0}, {6}, 0}, {1, {0}, {6}, 1}}}, "index");
  save.options.shard_size_bytes = 1000;
  TensorDict value = dict();
  value.set(name, numbered(DType::float32, {2}));
  TensorDict later = dict();
  later.set("v", value);
  save.tree.set("v", Value());
  for (TensorDict* tree : {&save.tree, &later}) {
    tree->set("v." + name, numbered(DType::float32, {6}));
    tree->set(other, numbered(DType::float32, {6}, 3));
  }
  ShardedWriter writer(path, save.tree, save.boxes, save.options);
  const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                             write_part(writer, save, 1)};
  try {
    writer.publish(receipts, later);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("has the dotted name of another tensor"));
    return false;
  }
  EXPECT_TRUE(diff(open(path), later).same());
  EXPECT_TRUE(verify(path).ok());
  return true;
}

TEST(IndexLayout, ATensorInAValueDoesNotMoveOthersWithTheSameDottedName) {
  const TemporaryFolder folder;
  const Path path = folder / "m.safetensors.index.json";
  // The planned tensor gets the suffix "~2", because its name is the second of two equal names.
  // publish() succeeds if the padding of the header has space for the suffix. It fails if the
  // suffix changes the order of the planned tensors: "v.x" precedes "v.x!", but "v.x~2" follows it.
  std::size_t num_published = 0;
  for (std::size_t length = 1; length <= 64; ++length) {
    const std::string name(length, 'x');
    if (publish_same_name(path, name, "a")) ++num_published;
    EXPECT_FALSE(publish_same_name(path, name, "v." + name + "!"));
  }
  EXPECT_GT(num_published, 0U);
  EXPECT_LT(num_published, 64U);
  EXPECT_EQ(files_beside_index(folder.path()), "");
}

TEST(ShardsLayout, HasTheFilesOfTorchsWriter) {
  const TemporaryFolder folder;
  const Save save = laid_out(rich_save(), "shards");
  run(save, folder / "m");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder / "m")) {
    names.push_back(entry.path().filename().string());
  }
  // A file contains at most one box of each tensor. Each rank has two boxes of the tensor "grid",
  // so it writes two files.
  EXPECT_THAT(names,
              UnorderedElementsAre("metadata.json", "shard-00001-model-00001-of-00002.safetensors",
                                   "shard-00001-model-00002-of-00002.safetensors",
                                   "shard-00002-model-00001-of-00002.safetensors",
                                   "shard-00002-model-00002-of-00002.safetensors"));
  EXPECT_EQ(probe(folder / "m"), "dcp");
  const TensorDict first = open(folder / "m" / "shard-00001-model-00001-of-00002.safetensors");
  EXPECT_EQ(first.at("model.rows").shape(), (Shape{3, 6}));
  fs::remove(folder / "m" / "shard-00002-model-00002-of-00002.safetensors");
  try {
    open(folder / "m");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("shard-00002-model-00002-of-00002.safetensors: missing"));
  }
}

TEST(ShardsLayout, ASplitTensorWithoutElementsHasAnEntryOfItsShape) {
  const TemporaryFolder folder;
  Save save = laid_out({dict(), {{0, {0, 0}, {1, 0}, 0}, {0, {1, 0}, {3, 0}, 1}}}, "shards");
  save.tree.set("empty", numbered(DType::int64, {4, 0}));
  run(save, folder / "m");
  const Path shard = folder / "m" / "shard-00001-model-00001-of-00001.safetensors";
  EXPECT_EQ(open(shard).at("empty").shape(), (Shape{4, 0}));
  EXPECT_TRUE(verify(folder / "m").ok());
  EXPECT_EQ(load(folder / "m").at("empty").shape(), (Shape{4, 0}));
}

TEST(ShardsLayout, WithoutItsManifestItDoesNotOpen) {
  const TemporaryFolder folder;
  run(laid_out(rich_save(), "shards"), folder / "m");
  const Path manifest = folder / "m" / "metadata.json";
  const std::string text = read_bytes(manifest);
  std::string renamed = text;
  renamed[renamed.find("tenfold.distributed")] ^= 1;
  const std::function<void()> damages[] = {
      [&] { write_bytes(manifest, renamed); },
      [&] { write_bytes(manifest, text.substr(0, 20)); },
      [&] { fs::remove(manifest); },
  };
  for (const auto& damage : damages) {
    damage();
    expect_error(ErrorCode::corrupt, "expected the manifest of ", [&] { open(folder / "m"); });
    const VerifyReport report = verify(folder / "m");
    ASSERT_EQ(report.problems.size(), 1U);
    EXPECT_THAT(report.problems[0].path, HasSubstr("metadata.json"));
    EXPECT_THAT(report.problems[0].what, HasSubstr("expected the manifest of "));
  }
}

TEST(TorchLayout, EntriesOfOneNameInTorchAreRefused) {
  const TemporaryFolder folder;
  Save save = laid_out({dict(), {{0, {0}, {2}, 0}, {0, {2}, {2}, 1}}}, "torch");
  save.tree.set("w", numbered(DType::float32, {4}));
  TensorDict inner = dict();
  inner.set("b", Value(2));
  TensorDict outer = dict();
  outer.set("a.b", Value(1));
  outer.set("a", inner);
  save.tree.set("o", outer);
  try {
    run(save, folder / "m");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("key \"o.a.b\": torch joins nested keys"));
  }
  EXPECT_FALSE(fs::exists(folder / "m"));
}

TEST(ShardsLayout, ForeignFilesAreNotReplaced) {
  const TemporaryFolder folder;
  for (const char* layout : {"shards", "torch"}) {
    const Save save = laid_out(rich_save(), layout);
    run(save, folder / layout);
    write_bytes(folder / layout / "notes.txt", "mine");
    try {
      ShardedWriter writer(folder / layout, save.tree, save.boxes, save.options);
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("found \"notes.txt\""));
    }
    try {
      ShardedWriter writer(folder / "m.safetensors", save.tree, save.boxes, save.options);
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("expected the name of a folder"));
    }
  }
}

TEST(ShardsLayout, AManifestOfAnotherToolIsNotReplaced) {
  const TemporaryFolder folder;
  for (const char* layout : {"shards", "torch"}) {
    const Save save = laid_out(rich_save(), layout);
    run(save, folder / layout);
    const Path manifest = folder / layout / "metadata.json";
    const std::string text = read_bytes(manifest);
    const auto refusal = [&]() -> std::string {
      try {
        run(save, folder / layout);
      } catch (const Error& error) {
        return error.what();
      }
      return "replaced";
    };
    const std::function<void()> others[] = {
        [&] { write_bytes(manifest, "{\"format\": \"of another tool\"}"); },
        [&] { fs::create_directory(manifest); },
        [&] { fs::create_symlink("none", manifest); },
    };
    for (const auto& make : others) {
      fs::remove(manifest);
      make();
      EXPECT_THAT(refusal(), HasSubstr("found \"metadata.json\""));
      EXPECT_TRUE(fs::exists(fs::symlink_status(manifest)));
    }
    fs::remove(manifest);
    // A damaged manifest is replaced.
    write_bytes(manifest, text.substr(0, text.size() / 2));
    EXPECT_EQ(refusal(), "replaced");
    EXPECT_TRUE(verify(folder / layout).ok());
  }
}

TEST(ShardsLayout, MutatedManifestsAreErrorsWithoutACrash) {
  const TemporaryFolder folder;
  for (const char* layout : {"shards", "torch"}) {
    Save save = laid_out({dict(), {{0, {0, 0}, {2, 4}, 0}, {0, {2, 0}, {2, 4}, 1}}}, layout);
    save.tree.set("w", numbered(DType::float32, {4, 4}));
    run(save, folder / layout);
    const Path manifest = folder / layout / "metadata.json";
    const std::string text = read_bytes(manifest);
    const std::pair<const char*, const char*> changes[] = {
        {"\"w\":0", "\"w\":1"},
        {"\"w\":0", "\"w\":-1"},
        {"\"w\":0", "\"w\":{\"x\":0}"},
        {"\"w\":0", "\"w\":{\"entries\":3}"},
        {"\"float32\"", "\"float64\""},
        {"\"float32\"", "\"nothing\""},
        {"[4,4]", "[4,5]"},
        {"[4,4]", "[4,9223372036854775807]"},
        {"\"version\":1", "\"version\":2"},
        {"\"files\":[", "\"files\":[\"../x\","},
        {"\"files\":[", "\"files\":[3,"},
        {"\"tree\":", "\"trees\":"},
    };
    for (const auto& [from, to] : changes) {
      std::string changed = text;
      ASSERT_NE(changed.find(from), std::string::npos) << from;
      changed.replace(changed.find(from), std::string(from).size(), to);
      write_bytes(manifest, changed);
      EXPECT_FALSE(verify(folder / layout).ok()) << to;
      EXPECT_THROW(load(folder / layout, {.verify = true}), Error) << to;
    }
    write_bytes(manifest, text);
    EXPECT_TRUE(verify(folder / layout).ok());
  }
}

struct Refusal {
  std::vector<ShardBox> boxes;
  const char* what;
};

TEST(ShardedWriterBoxes, GapsAndOverlapsAreRefusedByTensorAndRanks) {
  const TemporaryFolder folder;
  TensorDict tree = dict();
  tree.set("w", numbered(DType::float32, {4, 4}));
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  const Refusal refusals[] = {
      {{{0, {0, 0}, {4, 3}, 0}, {0, {0, 2}, {4, 2}, 1}},
       "tensor \"w\": boxes overlap: expected each element in one of them, found boxes at [0, 0] "
       "of shape [4, 3] of rank 0 and at [0, 2] of shape [4, 2] of rank 1"},
      {{{0, {0, 0}, {2, 4}, 0}, {0, {2, 0}, {2, 3}, 1}},
       "tensor \"w\": elements are in no box: expected boxes of 16 elements in all, found 14 in 2 "
       "boxes: at [0, 0] of shape [2, 4] of rank 0, at [2, 0] of shape [2, 3] of rank 1"},
      {{}, "found 0 in 0 boxes"},
      {{{0, {0, 0}, {4, 5}, 0}}, "a box exceeds the tensor: expected one within [4, 4]"},
      {{{0, {0}, {4}, 0}}, "a box exceeds the tensor"},
      {{{0, {-1, 0}, {4, 4}, 0}}, "a box exceeds the tensor"},
      {{{0, {kFar, 0}, {kFar, 4}, 0}}, "a box exceeds the tensor"},
      {{{1, {0, 0}, {4, 4}, 0}}, "expected a tensor index below 1"},
      {{{0, {0, 0}, {4, 4}, -1}}, "a rank of 0 or more"},
  };
  for (const Refusal& refusal : refusals) {
    try {
      ShardedWriter writer(folder / "m.safetensors", tree, refusal.boxes);
      FAIL() << refusal.what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(refusal.what));
    }
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(ShardedWriterBoxes, MismatchedTensorsAreNotWritten) {
  const TemporaryFolder folder;
  TensorDict tree = dict();
  tree.set("w", numbered(DType::float32, {4}));
  ShardedWriter writer(folder / "m.safetensors", tree, {{0, {0}, {4}, 0}});
  ShardWriter part(writer.ticket(0));
  const auto refusal = [&](std::size_t first, const std::vector<Tensor>& tensors) {
    try {
      part.write(first, tensors);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const Tensor right = numbered(DType::float32, {4});
  EXPECT_THAT(
      refusal(0, {numbered(DType::int32, {4})}),
      HasSubstr("tensor \"w\": box 0 of rank 0: expected float32 of shape [4], found int32"));
  EXPECT_THAT(refusal(0, {numbered(DType::float32, {3})}), HasSubstr("of [3]"));
  EXPECT_THAT(refusal(1, {right}), HasSubstr("expected 1 boxes, found more"));
  EXPECT_THAT(refusal(0, {right, right}), HasSubstr("expected 1 boxes, found more"));
  EXPECT_THROW(part.finish(), Error);
  EXPECT_EQ(refusal(0, {right}), "");
  EXPECT_THAT(refusal(0, {right}), HasSubstr("found a written one"));
  EXPECT_THROW(ShardWriter("{}"), Error);
  EXPECT_THROW(ShardWriter("nothing"), Error);
}

TEST(ShardedWriterLayouts, PathsOfUnsupportedFormatsAreRefused) {
  const TemporaryFolder folder;
  for (const char* name : {"m.pt", "m.npz", "m.tdz", "pytorch_model.bin.index.json"}) {
    try {
      ShardedWriter writer(folder / name, dict(), {});
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("expected a name that ends in \".safetensors\""));
    }
  }
}

TEST(ShardedWriterLayouts, TheFormatOverridesTheSuffix) {
  const TemporaryFolder folder;
  const auto saved = [&](const char* name, const char* format, ShardLayout layout) {
    Save save{dict(), {{0, {0}, {4}, 0}}};
    save.tree.set("w", numbered(DType::float32, {4}));
    save.options.format = format;
    save.options.layout = layout;
    run(save, folder / name);
    EXPECT_TRUE(diff(open(folder / name), save.tree).same());
    return probe(folder / name);
  };
  EXPECT_EQ(saved("file", "safetensors", ShardLayout::plain), "safetensors");
  EXPECT_TRUE(fs::is_regular_file(folder / "file"));
  EXPECT_EQ(saved("m.safetensors.index.json", "safetensors", ShardLayout::plain), "safetensors");
  EXPECT_TRUE(fs::exists(folder / "m-00001-of-00001.safetensors"));
  EXPECT_EQ(saved("m.safetensors", "memmap", ShardLayout::plain), "memmap");
  EXPECT_EQ(saved("m.pt", "dcp", ShardLayout::torch), "dcp");
  EXPECT_EQ(saved("shards", "dcp", ShardLayout::shards), "dcp");
}

TEST(ShardedWriterLayouts, AFormatOfAnotherLayoutIsRefused) {
  const TemporaryFolder folder;
  const std::tuple<const char*, ShardLayout, const char*> refusals[] = {
      {"pt", ShardLayout::plain, "found one of format \"pt\""},
      {"dcp", ShardLayout::plain, "found one of format \"dcp\""},
      {"memmap", ShardLayout::shards, "format: expected \"dcp\" or no format"},
      {"safetensors", ShardLayout::torch, "found \"safetensors\""},
      {"nothing", ShardLayout::plain, "no such format"},
  };
  for (const auto& [format, layout, what] : refusals) {
    try {
      ShardedWriter writer(folder / "m", dict(), {}, {.layout = layout, .format = format});
      FAIL() << format;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(what));
    }
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(ShardedWriterLayouts, UnsupportedEntriesAreRefusedByKey) {
  const TemporaryFolder folder;
  TensorDict tree = dict();
  tree.set("z", numbered(DType::complex128, {1}));
  try {
    ShardedWriter writer(folder / "m.safetensors", tree, {{0, {0}, {1}, 0}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("\"z\""));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(ShardedWriterHeader, AHeaderBeyondTheLimitIsRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  Save save{dict(), {{0, {0}, {1}, 0}}};
  save.tree.set("w", numbered(DType::uint8, {1}));
  // The header has the value as JSON inside a JSON string, so each character takes seven bytes:
  // \\u0001.
  save.tree.set("value", Value(std::string(15'000'000, '\x01')));
  std::size_t num_changes = 0;
  const WatchChanges watch([&](const os::Change&) { ++num_changes; });
  try {
    ShardedWriter writer(folder / "m.safetensors", save.tree, save.boxes, save.options);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("m.safetensors"),
                      HasSubstr("the header is too long: expected at most 100000000 bytes")));
  }
  EXPECT_EQ(num_changes, 0U);
  save.options.layout = ShardLayout::shards;  // values are not in the header
  ShardedWriter writer(folder / "shards", save.tree, save.boxes, save.options);
}

/// Returns true if the file system of the folder supports FALLOC_FL_INSERT_RANGE.
bool inserts_holes(const TemporaryFolder& folder) {
  os::File file = os::File::create_at(os::Directory::open(folder.path()), "probe");
  const std::string text = "x";
  file.write_at(0, std::as_bytes(std::span(text)));
  const bool inserts = file.insert_hole(0, file.block_bytes());
  fs::remove(folder / "probe");
  return inserts;
}

/// The changes of publish() to the file system.
struct Published {
  std::size_t num_created = 0;
  std::size_t num_inserted = 0;
  std::uint64_t num_written_bytes = 0;
};

/// Writes the parts of `save`, and publishes `later` instead of `save.tree`. Returns the changes of
/// publish() to the file system.
Published publish_later(const Save& save, const Path& path, const TensorDict& later) {
  ShardedWriter writer(path, save.tree, save.boxes, save.options);
  const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                             write_part(writer, save, 1)};
  Published published;
  const WatchChanges watch([&](const os::Change& change) {
    if (change.kind == os::Change::Kind::create_file) ++published.num_created;
    if (change.kind == os::Change::Kind::insert) ++published.num_inserted;
    published.num_written_bytes += change.bytes.size();
  });
  writer.publish(receipts, later);
  return published;
}

TEST(ShardedWriterHeader, ValuesThatArePlannedHaveExactSpace) {
  const TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  Save save = rich_save();
  save.tree.set("long", Value(std::string(1'000'000, 'x')));
  const Published published = publish_later(save, path, save.tree);
  EXPECT_EQ(published.num_created, 0U);
  EXPECT_EQ(published.num_inserted, 0U);
  // publish() wrote only the header, whose only padding is that for its alignment to 64 bytes.
  const std::string header =
      read_bytes(path).substr(0, static_cast<std::size_t>(published.num_written_bytes));
  EXPECT_LT(header.size() - header.find_last_not_of(' '), 65U);
  EXPECT_EQ(header.at(header.find_last_not_of(' ')), '}');
  EXPECT_TRUE(verify(path).ok());
}

TEST(ShardedWriterHeader, LongerValuesMoveTheDataOnce) {
  const TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  const bool inserts_here = inserts_holes(folder);
  const Save save = rich_save();
  // The longer header needs a part of an additional file-system block, about one block, or many.
  for (const std::size_t size : {std::size_t{100}, std::size_t{4000}, std::size_t{4032},
                                 std::size_t{4096}, std::size_t{1'000'000}}) {
    TensorDict later = rich_save().tree;
    later.set("step", Value(std::string(size, 'x')));
    for (const bool is_supported : {true, false}) {
      const bool before = os::set_insert_supported(is_supported);
      const Published published = publish_later(save, path, later);
      os::set_insert_supported(before);
      const bool is_inserted = is_supported && inserts_here;
      EXPECT_EQ(published.num_created, is_inserted ? 0U : 1U) << size;  // 1: the file is copied
      if (is_inserted) {
        EXPECT_EQ(published.num_inserted, 1U);
        EXPECT_LT(published.num_written_bytes, 10'000 + 2 * size);  // the header alone
      }
      const VerifyReport report = verify(path);
      EXPECT_TRUE(report.ok()) << size << ": " << report.problems.at(0).what;
      tenfold::save(later, folder / "alone");
      EXPECT_TRUE(diff(path, folder / "alone").same()) << size;
      fs::remove_all(folder / "alone");
      EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
    }
  }
}

TEST(ShardedWriterHeader, ASaveWhoseDataDidNotMoveCompletelyIsNotPublishedLater) {
  const TemporaryFolder folder;
  const Path path = folder / "m.safetensors";
  const Save save = rich_save();
  run(save, path);
  const std::string old = read_bytes(path);
  TensorDict later = rich_save().tree;
  later.set("step", Value(std::string(100'000, 'x')));
  {
    ShardedWriter writer(path, save.tree, save.boxes, save.options);
    const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                               write_part(writer, save, 1)};
    {
      const WatchChanges watch([](const os::Change& change) {
        if (change.kind == os::Change::Kind::insert) throw Error::io(ENOSPC, "full");
      });
      EXPECT_THROW(writer.publish(receipts, later), Error);
    }
    try {
      writer.publish(receipts, save.tree);
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr("save again"));
    }
  }
  EXPECT_EQ(read_bytes(path), old);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(ShardedWriterChecksums, VerifyReportsInvalidChecksumsOfBoxesWithoutACrash) {
  const TemporaryFolder folder;
  Save save{dict(), {{0, {0, 0}, {4, 2}, 0}, {0, {0, 2}, {4, 2}, 1}}};
  save.tree.set("w", numbered(DType::float32, {4, 4}));
  run(save, folder / "m.safetensors");
  const std::string file = read_bytes(folder / "m.safetensors");
  for (const char* boxes : {":0,0:4,2", ":0,2:4,2"}) {
    for (const char* other : {":0,1:4,2", ":0,0:4,4", ":9,0:4,2", ":0,0:0,2", ":0,0:9,9",
                              ":0,0;4,2", ":0,0:4  ", ":0,:,4,2"}) {
      std::string changed = file;
      changed.replace(changed.find(boxes), 8, other);
      // Give the changed header a valid checksum, as a deliberate change would.
      std::uint64_t length = 0;
      std::memcpy(&length, changed.data(), sizeof length);
      const std::string header = changed.substr(0, 8 + length);
      const std::size_t digits =
          detail::formats::find_checksums(header, detail::formats::safetensors::kBoxesMember);
      ASSERT_NE(digits, std::string::npos);
      changed.replace(digits, 16,
                      base::hex16(detail::formats::hash_with_blank_digits(header, digits)));
      write_bytes(folder / "m.safetensors", changed);
      EXPECT_FALSE(verify(folder / "m.safetensors").ok()) << other;
    }
  }
  run(save, folder / "folder");
  const Path sums = folder / "folder" / "%checksums";
  const std::string text = read_bytes(sums);
  EXPECT_THAT(text, HasSubstr(" box 4,16 0,8 4,8 w.memmap\n"));
  for (const char* line :
       {"0123456789abcdef box 4,16 0,0 4,16 w.memmap", "0123456789abcdef box 4,16 0,0 5,8 w.memmap",
        "0123456789abcdef box 9223372036854775808,2 0,0 1,1 w.memmap",
        "0123456789abcdef box 9223372036854775807,1 1,0 2,1 w.memmap",
        "0123456789abcdef box 4 0 4 ../w.memmap", "0123456789abcdef box w.memmap",
        "0123456789abcdef box 8,16 0,0 8,8 w.memmap",
        "0123456789abcdef box 4,16 0,0 4,0 w.memmap"}) {
    std::string body = text.substr(0, text.rfind("xxh3 "));
    body += std::string(line) + "\n";
    // Append the valid checksum of the changed lines, as a deliberate change would.
    write_bytes(sums,
                body + "xxh3 " + base::hex16(base::xxh3(std::as_bytes(std::span(body)))) + "\n");
    EXPECT_FALSE(verify(folder / "folder").ok()) << line;
  }
}

/// A save in which each rank writes whole rows. Parts of rows would be written through a mapping,
/// which the disk model does not see.
Save save_of(int version) {
  Save save{dict(), {{0, {0, 0}, {2, 3}, 0}, {0, {2, 0}, {2, 3}, 1}, {1, {0}, {2}, 1}}};
  save.tree.set("w", numbered(DType::float32, {4, 3}, version));
  save.tree.set("v", numbered(DType::float32, {2}, version));
  save.tree.set("version", Value(version));
  return save;
}

CrashCase crash_case(const char* name) {
  CrashCase crash;
  crash.name = "ShardedWriter";
  crash.file_name = name;
  const std::string layout = name;
  crash.make_old = [layout](const fs::path& path) {
    run(laid_out(save_of(1), layout), target_of(path));
  };
  crash.make_new = [layout](const fs::path& path, bool durable) {
    Save save = laid_out(save_of(2), layout);
    save.options.durable = durable;
    run(save, target_of(path));
  };
  if (layout == "index") crash.litter_in = files_beside_index;
  crash.which = [](const fs::path& folder) {
    const Path path = target_of(folder);
    if (!fs::exists(path)) return Found::absent;
    if (!verify(path).ok()) return Found::neither;
    const Value version = open(path).value("version");
    return version == Value(1)   ? Found::old_version
           : version == Value(2) ? Found::new_version
                                 : Found::neither;
  };
  return crash;
}

class Crash : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(ShardedWriter, Crash,
                         testing::Values("m.safetensors", "index", "folder", "shards", "torch"),
                         test_name);

TEST_P(Crash, ACrashAtEveryChangeLeavesACompleteVersion) {
  expect_survives_kill_at_every_change(crash_case(GetParam()), false, true);
  expect_survives_kill_at_every_change(crash_case(GetParam()), true, true);
}

TEST_P(Crash, ACrashOfTheFirstSaveLeavesNothingOrTheSave) {
  expect_survives_kill_at_every_change(crash_case(GetParam()), false, false);
}

TEST_P(Crash, AFullDiskAtEveryChangeLeavesACompleteVersion) {
  expect_survives_failure_of_every_change(crash_case(GetParam()), true, true, ENOSPC);
}

TEST_P(Crash, AnErrorOfEveryCloseLeavesACompleteVersion) {
  expect_survives_failure_of_every_close(crash_case(GetParam()), true, true);
}

TEST_P(Crash, APowerFailureAtEveryMomentLeavesACompleteVersion) {
  expect_survives_power_loss(crash_case(GetParam()), true, 4, 20262);
}

TEST_P(Crash, PrivateFilesStayPrivate) { expect_stays_private(crash_case(GetParam())); }

TEST_P(Crash, EachFileIsSyncedByTheDescriptorThatWroteIt) {
  expect_syncs_by_the_descriptor_that_wrote(crash_case(GetParam()));
}

TEST_P(PlainLayout, ACrashOfASaveWithTensorsInValuesLeavesACompleteVersion) {
  CrashCase crash = crash_case(GetParam());
  crash.make_new = [](const fs::path& path, bool durable) {
    Save save = laid_out(save_of(2), GetParam());
    save.options.durable = durable;
    save.options.accepts_values = true;
    TensorDict values = dict();
    values.set("more", numbered(DType::int32, {3}));
    ShardedWriter writer(target_of(path), save.tree, save.boxes, save.options);
    const std::vector<std::string> receipts = {write_part(writer, save, 0, &values),
                                               write_part(writer, save, 1)};
    TensorDict later = save_of(2).tree;
    later.set("more", writer.values(0).get("more"));
    writer.publish(receipts, later);
  };
  expect_survives_kill_at_every_change(crash, false, true);
  expect_survives_failure_of_every_change(crash, true, true, ENOSPC);
  expect_survives_power_loss(crash, true, 2, 20264);
  expect_stays_private(crash);
}

TEST(ShardedWriterHeader, ACrashWhileTheDataMoveLeavesACompleteVersion) {
  CrashCase crash = crash_case("m.safetensors");
  crash.make_new = [](const fs::path& path, bool durable) {
    Save save = save_of(2);
    save.options.durable = durable;
    TensorDict later = save_of(2).tree;
    later.set("long", Value(std::string(5000, 'x')));  // longer than the reserved space
    ShardedWriter writer(path, save.tree, save.boxes, save.options);
    const std::vector<std::string> receipts = {write_part(writer, save, 0),
                                               write_part(writer, save, 1)};
    writer.publish(receipts, later);
  };
  for (const bool is_supported : {true, false}) {
    const bool before = os::set_insert_supported(is_supported);
    expect_survives_kill_at_every_change(crash, true, true);
    expect_survives_failure_of_every_change(crash, true, true, ENOSPC);
    expect_survives_power_loss(crash, true, 4, 20263);
    os::set_insert_supported(before);
  }
}

}  // namespace
}  // namespace tenfold::test
