// Snapshots that several ranks write together. This process simulates each rank by a SnapshotPart.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <complex>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>
#include <tenfold/read_boxes.hpp>
#include <tenfold/snapshot.hpp>

#include "formats/snapshot/manifest.hpp"
#include "io/sample_trees.hpp"
#include "io/snapshot_ranks/merge.hpp"
#include "os/fs/change_observer.hpp"
#include "support/files.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"
#include "support/watch_changes.hpp"

namespace tenfold::test {
namespace {

using test::message_of;

namespace fs = std::filesystem;
namespace snapshot = detail::formats::snapshot;
using detail::snapshot_ranks::Receipt;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

/// The state of one rank.
struct OfRank {
  TensorDict state = node_of(NodeKind::dict);
  std::vector<SnapshotShards> shards{};
  std::map<std::string, std::string> metadata{};
  std::optional<Value> schema{};

  TensorDict root() const {
    TensorDict root = node_of(NodeKind::dict);
    root.info().metadata = metadata;
    root.info().schema = schema;
    root.set("state", state);
    return root;
  }
};

/// Adds `parts`, the shards of a tensor that `rank` has, under state[key].
void add_shards(OfRank& rank, const std::string& key, Shape shape,
                const std::vector<std::pair<Shape, Tensor>>& parts, Shape mesh = {}) {
  TensorDict list = node_of(NodeKind::list);
  SnapshotShards shards{.key = {"state", key}, .shape = std::move(shape)};
  for (const auto& [offsets, part] : parts) {
    list.set(std::to_string(shards.offsets.size()), part);
    shards.offsets.push_back(offsets);
    shards.dtype = part.dtype();
  }
  if (!mesh.empty()) {
    shards.is_dtensor = true;
    shards.mesh_shape = {static_cast<std::int64_t>(mesh.size())};
    shards.mesh = mesh;
    shards.dim_map.assign(shards.shape.size(), {-1});
    shards.dim_map[0] = {0};
  }
  rank.state.set(key, list);
  rank.shards.push_back(std::move(shards));
}

class Ranks {
 public:
  explicit Ranks(const std::vector<OfRank>& ranks, const SnapshotOptions& options = {})
      : options_(options) {
    options_.durable = false;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      parts_.emplace_back(ranks[i].root(), static_cast<std::int64_t>(i),
                          static_cast<std::int64_t>(ranks.size()), ranks[i].shards, options_);
      outlines.push_back(parts_.back().outline());
    }
  }

  SnapshotWriter begin(const Path& path) const { return {path, outlines, options_}; }

  std::vector<std::string> write(const std::string& ticket) {
    std::vector<std::string> receipts;
    for (SnapshotPart& part : parts_) receipts.push_back(part.write(ticket));
    return receipts;
  }

  void save(const Path& path) {
    SnapshotWriter writer = begin(path);
    writer.publish(write(writer.ticket()));
    const VerifyReport report = verify(path);
    EXPECT_THAT(report.problems, IsEmpty());
    EXPECT_GT(report.num_checksums, 0U);
  }

  std::vector<std::string> outlines;

 private:
  SnapshotOptions options_;
  std::vector<SnapshotPart> parts_;
};

snapshot::Manifest manifest_of(const Path& path) {
  return snapshot::parse_manifest(read_bytes(path / ".snapshot_metadata"), "metadata");
}

std::vector<float> floats(const Tensor& tensor) {
  const Tensor whole = tensor.contiguous();
  return {whole.span<float>().begin(), whole.span<float>().end()};
}

/// Returns the states of two ranks. Each has half of the rows of "table", an "own" tensor, and
/// entries that are equal in both ranks.
std::vector<OfRank> two_ranks() {
  std::vector<OfRank> ranks(2);
  for (int i = 0; i < 2; ++i) {
    OfRank& rank = ranks[static_cast<std::size_t>(i)];
    rank.state.set("shared", counting({5}));
    rank.state.set("epoch", Value(3));
    rank.state.set("pair", Value(Value::Tuple{{Value(1), Value("x")}}));
    rank.state.set("own", counting({2}, static_cast<float>(10 * i)));
    add_shards(rank, "table", {4, 3}, {{{2 * i, 0}, counting({2, 3}, static_cast<float>(6 * i))}});
  }
  return ranks;
}

const SnapshotOptions kReplicated{.replicated = {"state/shared", "state/epoch", "state/pair"}};

TEST(SnapshotRanks, EachRankReadsItsOwnAndReplicatedEntries) {
  const TemporaryFolder folder;
  Ranks(two_ranks(), kReplicated).save(folder / "s");
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const TensorDict state = open_snapshot(folder / "s", rank)["state"];
    EXPECT_THAT(state.keys(), ElementsAre("shared", "epoch", "pair", "own", "table"));
    EXPECT_EQ(bytes_of(state.at("shared")), bytes_of(counting({5})));
    EXPECT_EQ(state.value("epoch"), Value(3));
    EXPECT_EQ(state.value("pair"), Value(Value::Tuple{{Value(1), Value("x")}}));
    EXPECT_EQ(bytes_of(state.at("own")), bytes_of(counting({2}, static_cast<float>(10 * rank))));
    EXPECT_EQ(bytes_of(state.at("table")), bytes_of(counting({4, 3})));
  }
  const snapshot::Manifest manifest = manifest_of(folder / "s");
  EXPECT_EQ(manifest.world_size, 2);
  EXPECT_TRUE(manifest.find("0/state/shared")->tensor.replicated);
  EXPECT_EQ(manifest.find("1/state/shared"), nullptr);
  EXPECT_EQ(manifest.find("1/state/table")->type, snapshot::EntryType::sharded_tensor);
  EXPECT_FALSE(fs::exists(folder / "s" / "%staging"));
}

TEST(SnapshotRanks, ThePathMayEndWithASlash) {
  const TemporaryFolder folder;
  Ranks(two_ranks(), kReplicated).save(folder / "s/");
  EXPECT_EQ(manifest_of(folder / "s").world_size, 2);
}

TEST(SnapshotRanks, ARankWithoutEntriesOfItsOwnReadsReplicatedOnes) {
  const TemporaryFolder folder;
  for (const NodeKind kind : {NodeKind::dict, NodeKind::list}) {
    TensorDict root = node_of(kind);
    root.set("0", counting({3}));
    const SnapshotOptions options{.durable = false, .replicated = {"0"}};
    std::vector<SnapshotPart> parts;
    for (std::int64_t i = 0; i < 2; ++i) {
      parts.emplace_back(root, i, 2, std::vector<SnapshotShards>(), options);
    }
    const std::vector<std::string> outlines = {parts[0].outline(), parts[1].outline()};
    SnapshotWriter writer(folder / "s", outlines, options);
    writer.publish(
        std::vector<std::string>{parts[0].write(writer.ticket()), parts[1].write(writer.ticket())});
    for (const std::int64_t rank : {0, 1, 2}) {
      EXPECT_EQ(difference(root, open_snapshot(folder / "s", rank)), "") << rank;
    }
  }
}

TEST(SnapshotRanks, AdditionalRanksReadSharedEntriesAndGetAnErrorForTheRest) {
  const TemporaryFolder folder;
  Ranks(two_ranks(), kReplicated).save(folder / "s");
  const TensorDict state = open_snapshot(folder / "s", 2)["state"];
  EXPECT_EQ(bytes_of(state.at("shared")), bytes_of(counting({5})));
  EXPECT_EQ(state.value("epoch"), Value(3));
  EXPECT_EQ(bytes_of(state.at("table")), bytes_of(counting({4, 3})));
  const std::string said = message_of([&] { state.at("own"); }, ErrorCode::key_not_found);
  EXPECT_THAT(said, AllOf(HasSubstr("\"state.own\""), HasSubstr("ranks 0 to 1")));
  message_of([&] { open_snapshot(folder / "s", -1); }, ErrorCode::invalid_argument);
  message_of([&] { open_snapshot(folder / "none", -1); }, ErrorCode::invalid_argument);
}

TEST(SnapshotRanks, AnotherRankReadsOnlyReplicatedEntriesOfASnapshotOfOneRank) {
  const TemporaryFolder folder;
  TensorDict root = node_of(NodeKind::dict);
  root.set("a", counting({2}));
  root.set("b", counting({3}));
  save_snapshot(root, folder / "s", {.replicated = {"a"}});
  EXPECT_EQ(open_snapshot(folder / "s", 1).at("a").numel(), 2);
  EXPECT_THAT(message_of([&] { open_snapshot(folder / "s", 1).at("b"); }, ErrorCode::key_not_found),
              HasSubstr("rank 0 alone"));
  EXPECT_EQ(open_snapshot(folder / "s", 0).at("b").numel(), 3);
}

TEST(SnapshotRanks, ReplicatedItemsOfAListMayPrecedeOnesOfEachRank) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(2);
  for (std::int64_t i = 0; i < 2; ++i) {
    TensorDict list = node_of(NodeKind::list);
    list.set("0", counting({3}));
    list.set("1", counting({2}, static_cast<float>(10 * i)));
    ranks[static_cast<std::size_t>(i)].state.set("list", list);
  }
  Ranks(ranks, {.replicated = {"state/list/0"}}).save(folder / "s");
  EXPECT_EQ(manifest_of(folder / "s").find("1/state/list/0"), nullptr);
  const Warnings warnings;
  for (std::int64_t i = 0; i < 2; ++i) {
    const TensorDict list = open_snapshot(folder / "s", i)["state"]["list"];
    EXPECT_EQ(bytes_of(list.at("0")), bytes_of(counting({3})));
    EXPECT_EQ(bytes_of(list.at("1")), bytes_of(counting({2}, static_cast<float>(10 * i))));
  }
  open(folder / "s");
  EXPECT_THAT(warnings.all(), IsEmpty());
}

TEST(SnapshotRanks, RootsWithReplicatedEntriesKeepTheirKindAndOrder) {
  const TemporaryFolder folder;
  for (const NodeKind kind : {NodeKind::list, NodeKind::ordered_dict, NodeKind::dict}) {
    const SnapshotOptions options{.durable = false, .replicated = {"0", "1"}};
    std::vector<TensorDict> roots;
    std::vector<SnapshotPart> parts;
    for (std::int64_t i = 0; i < 2; ++i) {
      TensorDict root = node_of(kind);
      root.info().int_keys = kind == NodeKind::dict;
      root.set("0", counting({3}));
      root.set("1", counting({4}));
      root.set("2", counting({2}, static_cast<float>(10 * i)));
      roots.push_back(root);
      parts.emplace_back(root, i, 2, std::vector<SnapshotShards>(), options);
    }
    const std::vector<std::string> outlines = {parts[0].outline(), parts[1].outline()};
    SnapshotWriter writer(folder / "s", outlines, options);
    writer.publish(
        std::vector<std::string>{parts[0].write(writer.ticket()), parts[1].write(writer.ticket())});
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      const TensorDict& root = roots[static_cast<std::size_t>(rank)];
      EXPECT_EQ(difference(root, open_snapshot(folder / "s", rank)), "") << rank;
    }
  }
}

TEST(SnapshotRanks, ReplicatedTensorsAreWrittenOnceAndBalancedOverRanks) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(3);
  for (OfRank& rank : ranks) {
    for (const char* key : {"a", "b", "c"}) rank.state.set(key, counting({1000}));
  }
  Ranks(ranks, {.replicated = {"*"}, .slab_bytes = 1}).save(folder / "s");
  const snapshot::Manifest manifest = manifest_of(folder / "s");
  std::set<std::string> locations;
  for (const char* key : {"a", "b", "c"}) {
    const auto* entry = manifest.find(std::string("0/state/") + key);
    locations.insert(entry->tensor.location);
  }
  EXPECT_EQ(locations.size(), 3U);
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_TRUE(fs::exists(folder / "s" / "replicated" / rank)) << rank;
  }
}

TEST(SnapshotRanks, ChunksOfAReplicatedTensorAreBalancedOverRanks) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(2);
  for (OfRank& rank : ranks) rank.state.set("big", counting({10, 2}));
  Ranks(ranks, {.replicated = {"*"}, .slab_bytes = 1, .chunk_bytes = 24}).save(folder / "s");
  const snapshot::Manifest manifest = manifest_of(folder / "s");
  const auto* entry = manifest.find("0/state/big");
  ASSERT_EQ(entry->pieces.size(), 4U);
  std::set<std::string> writers;
  for (const auto& piece : entry->pieces) writers.insert(piece.tensor.location.substr(0, 13));
  EXPECT_THAT(writers, ElementsAre("replicated/0/", "replicated/1/"));
  EXPECT_EQ(bytes_of(open_snapshot(folder / "s", 1)["state"].at("big")),
            bytes_of(counting({10, 2})));
}

TEST(SnapshotRanks, ReplicatedTensorsKeepSharedStorage) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(2);
  for (OfRank& rank : ranks) {
    const Tensor tensor = counting({100});
    rank.state.set("a", tensor);
    rank.state.set("other", counting({100}));
    rank.state.set("b", tensor);
  }
  Ranks(ranks, {.replicated = {"*"}}).save(folder / "s");
  const snapshot::Manifest manifest = manifest_of(folder / "s");
  EXPECT_EQ(manifest.find("0/state/a")->tensor.location,
            manifest.find("0/state/b")->tensor.location);
  const TensorDict state = open_snapshot(folder / "s", 1)["state"];
  EXPECT_EQ(state.at("a").raw_data(), state.at("b").raw_data());
}

TEST(SnapshotRanks, EntriesThatMatchOnSomeRanksOnlyBelongToThem) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(2);
  ranks[0].state.set("x", counting({2}));
  ranks[0].state.set("y", counting({2}));
  ranks[1].state.set("y", counting({2}));
  Ranks(ranks, {.replicated = {"*"}}).save(folder / "s");
  EXPECT_FALSE(manifest_of(folder / "s").find("0/state/x")->tensor.replicated);
  EXPECT_THAT(open_snapshot(folder / "s", 1)["state"].keys(), ElementsAre("y"));
}

TEST(SnapshotRanks, ReplicatedEntriesThatDifferAreRefusedByNameAndRank) {
  const TemporaryFolder folder;
  const auto said = [&](const TensorDict::Item& first, const TensorDict::Item& second) {
    std::vector<OfRank> ranks(2);
    ranks[0].state.set("x", first);
    ranks[1].state.set("x", second);
    const Ranks all(ranks, {.replicated = {"*"}});
    return message_of([&] { all.begin(folder / "s"); }, ErrorCode::invalid_argument);
  };
  EXPECT_THAT(said(Leaf(counting({2})), Leaf(counting({3}))),
              AllOf(HasSubstr("\"state/x\""), HasSubstr("[3] on rank 1")));
  EXPECT_THAT(said(NonTensor{Value(1)}, NonTensor{Value(2)}), HasSubstr("\"2\" on rank 1"));
  EXPECT_THAT(
      said(NonTensor{Value(Value::Tuple{{Value(1)}})}, NonTensor{Value(Value::Tuple{{Value(2)}})}),
      HasSubstr("builtins.tuple"));
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(SnapshotRanks, ReplicatedValuesAreComparedCompletelyAndWithTheirTypes) {
  const TemporaryFolder folder;
  const auto said = [&](const Value& first, const Value& second) {
    std::vector<OfRank> ranks(2);
    ranks[0].state.set("x", first);
    ranks[1].state.set("x", second);
    const Ranks all(ranks, {.replicated = {"*"}});
    return message_of([&] { all.begin(folder / "s"); }, ErrorCode::invalid_argument);
  };
  const std::string same(200, 'a');
  EXPECT_THAT(said(Value(same + "x"), Value(same + "y")), HasSubstr("of digest"));
  EXPECT_THAT(said(Value(1), Value("1")), HasSubstr("int \"1\" as on rank 0, found str \"1\""));
}

TEST(SnapshotRanks, ReplicatedTensorsMustHaveTheSameChunksOnAllRanks) {
  const TemporaryFolder folder;
  TensorDict root = node_of(NodeKind::dict);
  root.set("x", counting({100}));
  std::vector<std::string> outlines;
  for (const std::uint64_t chunk_bytes : {std::uint64_t{200}, std::uint64_t{240}}) {
    const SnapshotOptions options{.replicated = {"x"}, .slab_bytes = 0, .chunk_bytes = chunk_bytes};
    const auto rank = static_cast<std::int64_t>(outlines.size());
    outlines.push_back(SnapshotPart(root, rank, 2, {}, options).outline());
  }
  const auto begin = [&] { SnapshotWriter(folder / "s", outlines); };
  EXPECT_THAT(message_of(begin, ErrorCode::invalid_argument),
              HasSubstr("chunks of [200, 200] bytes as on rank 0, found chunks of [240, 160]"));
}

TEST(SnapshotRanks, BoxesHeldBySeveralRanksAreWrittenOnceAndListedForEach) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(4);
  for (std::int64_t i = 0; i < 4; ++i) {
    // Ranks 0 and 1 have the first half of the rows, ranks 2 and 3 the second half.
    const std::int64_t row = i / 2 * 4;
    add_shards(ranks[static_cast<std::size_t>(i)], "w", {8, 2},
               {{{row, 0}, counting({4, 2}, static_cast<float>(2 * row))}}, {0, 1, 2, 3});
  }
  Ranks(ranks, {.slab_bytes = 1, .chunk_bytes = 16}).save(folder / "s");
  const snapshot::Manifest manifest = manifest_of(folder / "s");
  std::set<std::string> locations;
  for (const char* rank : {"0", "1", "2", "3"}) {
    const auto* entry = manifest.find(std::string(rank) + "/state/w");
    ASSERT_EQ(entry->pieces.size(), 2U) << rank;  // each half in two files
    EXPECT_EQ(entry->type, snapshot::EntryType::dtensor);
    EXPECT_EQ(to_json(entry->mesh), "[0, 1, 2, 3]");
    EXPECT_EQ(to_json(entry->dim_map), "[[0], [-1]]");
    for (const auto& piece : entry->pieces) locations.insert(piece.tensor.location);
  }
  EXPECT_EQ(locations.size(), 4U);
  EXPECT_EQ(bytes_of(open_snapshot(folder / "s", 9)["state"].at("w")), bytes_of(counting({8, 2})));
}

TEST(SnapshotRanks, EmptyPartsAndTensorsKeepTheirShape) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(2);
  add_shards(ranks[0], "few", {1, 3}, {{{0, 0}, counting({1, 3})}}, {0, 1});
  add_shards(ranks[1], "few", {1, 3}, {{{1, 0}, counting({0, 3})}}, {0, 1});
  for (OfRank& rank : ranks) add_shards(rank, "none", {0, 4}, {{{0, 0}, counting({0, 4})}}, {0, 1});
  Ranks(ranks).save(folder / "s");
  const TensorDict state = open_snapshot(folder / "s", 1)["state"];
  EXPECT_EQ(bytes_of(state.at("few")), bytes_of(counting({1, 3})));
  EXPECT_THAT(state.at("none").shape(), ElementsAre(0, 4));
}

TEST(SnapshotRanks, ShardsOfOneTensorOverTheSameMemoryHaveSeparateFiles) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(1);
  const Tensor part = counting({2, 3});
  add_shards(ranks[0], "w", {4, 3}, {{{0, 0}, part}, {{2, 0}, part}});
  Ranks(ranks).save(folder / "s");
  const TensorDict state = std::get<TensorDict>(open(folder / "s").get("state"));
  EXPECT_EQ(bytes_of(state.at("w")), bytes_of(part) + bytes_of(part));
}

TEST(SnapshotRanks, ShardsOfOtherDTypesAreTorchFiles) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(2);
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::vector<std::complex<float>> values = {{0, 0}, {1, static_cast<float>(i)}};
    const Tensor part = Tensor::from(std::span<const std::complex<float>>(values), {2});
    add_shards(ranks[static_cast<std::size_t>(i)], "z", {4}, {{{2 * i}, part}});
  }
  Ranks(ranks).save(folder / "s");
  const Tensor found = open_snapshot(folder / "s", 0)["state"].at("z");
  EXPECT_EQ(found.span<std::complex<float>>()[3], std::complex<float>(1, 1));
}

TEST(SnapshotRanks, ShardsThatDoNotCoverTheirTensorAreRefused) {
  const TemporaryFolder folder;
  const auto said = [&](std::int64_t row, std::int64_t rows, Shape shape) {
    std::vector<OfRank> ranks(2);
    add_shards(ranks[0], "w", {4, 2}, {{{0, 0}, counting({2, 2})}});
    add_shards(ranks[1], "w", std::move(shape), {{{row, 0}, counting({rows, 2})}});
    const Ranks all(ranks);
    return message_of([&] { all.begin(folder / "s"); }, ErrorCode::invalid_argument);
  };
  for (const std::int64_t row : {1, 3}) EXPECT_THAT(said(row, 1, {4, 2}), HasSubstr("gaps"));
  EXPECT_THAT(said(1, 3, {4, 2}), HasSubstr("overlaps"));
  EXPECT_THAT(said(3, 2, {4, 2}), HasSubstr("does not fit"));
  EXPECT_THAT(said(2, 3, {5, 2}), AllOf(HasSubstr("\"state/w\""), HasSubstr("on rank 1")));
  std::vector<OfRank> twice(1);
  add_shards(twice[0], "w", {2, 2}, {{{0, 0}, counting({2, 2})}, {{0, 0}, counting({2, 2})}});
  EXPECT_THAT(message_of([&] { Ranks(twice).begin(folder / "s"); }, ErrorCode::invalid_argument),
              HasSubstr("overlaps itself"));
}

TEST(SnapshotRanks, ShardsThatDoNotFitTheStateAreRefused) {
  OfRank rank;
  rank.state.set("w", counting({4}));
  SnapshotShards shards{.key = {"state", "w"}, .shape = {4}, .offsets = {{0}}};
  const auto part = [&] { SnapshotPart(rank.root(), 0, 1, {shards}); };
  EXPECT_THAT(message_of(part, ErrorCode::invalid_argument), HasSubstr("a list of its 1 parts"));
  shards.key = {"state", "no"};
  EXPECT_THAT(message_of(part, ErrorCode::invalid_argument), HasSubstr("found 0"));
  add_shards(rank, "w", {4}, {{{0}, counting({4})}});
  shards = rank.shards[0];
  shards.dtype = DType::int8;
  EXPECT_THAT(message_of(part, ErrorCode::invalid_argument), HasSubstr("dense int8"));
  shards.dtype = DType::float32;
  shards.is_dtensor = true;
  EXPECT_THAT(message_of(part, ErrorCode::invalid_argument), HasSubstr("mesh"));
  message_of([&] { SnapshotPart(rank.root(), 2, 2); }, ErrorCode::invalid_argument);
}

TEST(SnapshotRanks, WithoutPublishTheOldSnapshotStays) {
  const TemporaryFolder folder;
  save_snapshot(sample_checkpoint(), folder / "s");
  {
    Ranks ranks(two_ranks(), kReplicated);
    const SnapshotWriter writer = ranks.begin(folder / "s");
    ranks.write(writer.ticket());
  }
  EXPECT_EQ(difference(sample_checkpoint(), open(folder / "s")), "");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(names, ElementsAre("s"));
  Ranks(two_ranks(), kReplicated).save(folder / "s");
  EXPECT_EQ(manifest_of(folder / "s").world_size, 2);
}

TEST(SnapshotRanks, ReceiptsMustBeThoseOfAllRanksOfThisSave) {
  const TemporaryFolder folder;
  Ranks ranks(two_ranks(), kReplicated);
  SnapshotWriter other = ranks.begin(folder / "other");
  const std::vector<std::string> others = ranks.write(other.ticket());
  SnapshotWriter writer = ranks.begin(folder / "s");
  std::vector<std::string> receipts = ranks.write(writer.ticket());
  const auto publish = [&](const std::vector<std::string>& given) {
    return message_of([&] { writer.publish(given); }, ErrorCode::invalid_argument);
  };
  EXPECT_THAT(publish({receipts[0]}), HasSubstr("found 1"));
  EXPECT_THAT(publish({receipts[1], receipts[0]}), HasSubstr("in order"));
  EXPECT_THAT(publish({receipts[0], others[1]}), HasSubstr("of another"));
  EXPECT_THAT(publish({receipts[0], "no receipt"}), HasSubstr("receipt"));
  EXPECT_THAT(publish({receipts[0], writer.ticket()}), HasSubstr("receipt"));
  // publish() refuses receipts of ranks that did not write the parts of this snapshot.
  Ranks empty({OfRank{}, OfRank{}});
  EXPECT_THAT(publish(empty.write(writer.ticket())),
              HasSubstr("expected the complete entry in the receipt of rank 0, found none"));
  EXPECT_FALSE(fs::exists(folder / "s"));
  writer.publish(receipts);
  EXPECT_THAT(publish(receipts), HasSubstr("is published"));
}

TEST(SnapshotRanks, APublishThatFailedIsNotRepeated) {
  const TemporaryFolder folder;
  Ranks ranks(two_ranks(), kReplicated);
  SnapshotWriter writer = ranks.begin(folder / "s");
  const std::vector<std::string> receipts = ranks.write(writer.ticket());
  {
    const WatchChanges watch([](const os::Change& change) {
      if (change.kind == os::Change::Kind::create_file) throw Error::io(ENOSPC, change.name);
    });
    EXPECT_THAT(message_of([&] { writer.publish(receipts); }, ErrorCode::io), HasSubstr("space"));
  }
  EXPECT_THAT(message_of([&] { writer.publish(receipts); }, ErrorCode::invalid_argument),
              HasSubstr("save again"));
  EXPECT_FALSE(fs::exists(folder / "s"));
}

TEST(SnapshotRanks, InvalidTicketsOutlinesAndReceiptsAreRefused) {
  const TemporaryFolder folder;
  Ranks ranks(two_ranks(), kReplicated);
  SnapshotWriter writer = ranks.begin(folder / "s");
  for (const std::string& text : {std::string(), std::string("[]"), ranks.outlines[0]}) {
    EXPECT_THAT(message_of([&] { ranks.write(text); }, ErrorCode::invalid_argument),
                HasSubstr("ticket"));
  }
  const auto begin = [&](const std::vector<std::string>& outlines) {
    return message_of([&] { SnapshotWriter(folder / "t", outlines); }, ErrorCode::invalid_argument);
  };
  EXPECT_THAT(begin({}), HasSubstr("one outline from each rank"));
  EXPECT_THAT(begin({ranks.outlines[0]}), HasSubstr("found 1"));
  EXPECT_THAT(begin({ranks.outlines[1], ranks.outlines[0]}), HasSubstr("in order"));
  Ranks one({OfRank{}});
  EXPECT_THAT(message_of([&] { one.write(writer.ticket()); }, ErrorCode::invalid_argument),
              HasSubstr("1 ranks, found 2"));
}

TEST(SnapshotRanks, StringsOfMessagesThatAreNotBase64AreRefused) {
  const TemporaryFolder folder;
  Ranks ranks(two_ranks(), kReplicated);
  SnapshotWriter writer = ranks.begin(folder / "s");
  std::vector<std::string> receipts = ranks.write(writer.ticket());
  const auto damaged = [](std::string message, const std::string& member) {
    const std::size_t colon = message.find(':', message.find('"' + member + '"'));
    message.insert(message.find('"', colon) + 1, "!");
    return message;
  };
  for (const char* member : {"host", "staging"}) {
    const std::string ticket = damaged(writer.ticket(), member);
    EXPECT_THAT(message_of([&] { ranks.write(ticket); }, ErrorCode::invalid_argument),
                HasSubstr("ticket"));
  }
  receipts[1] = damaged(receipts[1], "checksums");
  EXPECT_THAT(message_of([&] { writer.publish(receipts); }, ErrorCode::invalid_argument),
              HasSubstr("receipt"));
}

TEST(SnapshotRanks, AMissingChunkIsReportedWithTheRanksThatWriteChunks) {
  const TemporaryFolder folder;
  std::vector<OfRank> states(2);
  for (OfRank& rank : states) rank.state.set("big", counting({10, 2}));
  Ranks ranks(states, {.replicated = {"*"}, .slab_bytes = 1, .chunk_bytes = 24});
  SnapshotWriter writer = ranks.begin(folder / "s");
  std::vector<std::string> receipts = ranks.write(writer.ticket());
  Receipt none = Receipt::parse(receipts[1]);
  none.manifest = snapshot::write_manifest({});
  receipts[1] = none.to_text();
  EXPECT_THAT(message_of([&] { writer.publish(receipts); }, ErrorCode::invalid_argument),
              AllOf(HasSubstr("\"state/big\""), HasSubstr("in the receipts of ranks [0, 1]")));
}

TEST(SnapshotRanks, NotesOfDifferentTypesAreRefused) {
  std::vector<Receipt> receipts;
  for (const char* notes : {R"({"nodes": {}})", R"({"nodes": []})"}) {
    receipts.push_back({"id", static_cast<std::int64_t>(receipts.size()),
                        snapshot::write_manifest({}), "", notes});
  }
  const auto merge_in = [](const std::vector<Receipt>& all) {
    detail::snapshot_ranks::merge("s", all, {}, {});
  };
  EXPECT_THAT(message_of([&] { merge_in(receipts); }, ErrorCode::corrupt), HasSubstr("rank 1"));
  std::swap(receipts[0].notes, receipts[1].notes);
  message_of([&] { merge_in(receipts); }, ErrorCode::corrupt);
}

TEST(SnapshotRanks, ARankThatDoesNotSeeTheFolderReportsIt) {
  const TemporaryFolder folder;
  Ranks ranks(two_ranks(), kReplicated);
  std::string ticket;
  {
    const SnapshotWriter writer = ranks.begin(folder / "s");
    ticket = writer.ticket();
  }
  const std::string message = message_of([&] { ranks.write(ticket); }, ErrorCode::io);
  EXPECT_THAT(message, AllOf(HasSubstr("coordinator on host"), HasSubstr("shared folder")));
  const std::size_t path = message.find("/.s.tenfold");
  EXPECT_NE(path, std::string::npos) << message;
  EXPECT_EQ(path, message.rfind("/.s.tenfold")) << message;
}

TEST(SnapshotRanks, ForeignFilesAreNotReplaced) {
  const TemporaryFolder folder;
  save_snapshot(sample_checkpoint(), folder / "s");
  write_bytes(folder / "s" / "notes.txt", "mine");
  const Ranks ranks(two_ranks(), kReplicated);
  EXPECT_THAT(message_of([&] { ranks.begin(folder / "s"); }, ErrorCode::invalid_argument),
              HasSubstr("notes.txt"));
}

TEST(SnapshotRanks, NodesOfAllRanksKeepTheirKinds) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(2);
  for (std::int64_t i = 0; i < 2; ++i) {
    NodeInfo info;
    info.batch_size = {2 + i};
    TensorDict rows(info);
    rows.set("x", counting({2 + i, 3}));
    ranks[static_cast<std::size_t>(i)].state.set("rows", rows);
  }
  Ranks(ranks).save(folder / "s");
  for (std::int64_t i = 0; i < 2; ++i) {
    const TensorDict rows = open_snapshot(folder / "s", i)["state"]["rows"];
    EXPECT_EQ(rows.kind(), NodeKind::tensordict);
    EXPECT_THAT(rows.batch_size(), ElementsAre(2 + i));
  }
}

TEST(SnapshotRanks, MetadataOfAllRanksIsKept) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks = two_ranks();
  for (OfRank& rank : ranks) rank.metadata["author"] = "me";
  ranks[1].metadata["host"] = "second";
  const Warnings warnings;
  Ranks(ranks, kReplicated).save(folder / "s");
  const auto expect_kept = [&](const TensorDict& tree) {
    EXPECT_THAT(tree.info().metadata, ElementsAre(Pair("author", "me"), Pair("host", "second")));
  };
  expect_kept(open(folder / "s"));
  for (const std::int64_t rank : {0, 1, 2}) expect_kept(open_snapshot(folder / "s", rank));
  EXPECT_THAT(warnings.all(), IsEmpty());
}

TEST(SnapshotRanks, LaterMetadataThatDiffersAndSchemasAreIgnoredWithAWarning) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(2);
  for (OfRank& rank : ranks) rank.state.set("x", counting({2}));
  ranks[0].metadata = {{"author", "first"}, {"run", "7"}};
  ranks[1].metadata = {{"author", "second"}, {"run", "7"}};
  ranks[1].schema = Value::Object{{{"columns", Value(1)}}};
  const Warnings warnings;
  Ranks(ranks).save(folder / "s");
  EXPECT_THAT(warnings.all(), UnorderedElementsAre(AllOf(HasSubstr("receipt of rank 1"),
                                                         HasSubstr("metadata \"author\"")),
                                                   HasSubstr("snapshot: the schema is ignored")));
  const TensorDict tree = open(folder / "s");
  EXPECT_THAT(tree.info().metadata, ElementsAre(Pair("author", "first"), Pair("run", "7")));
  EXPECT_FALSE(tree.info().schema);
}

TEST(SnapshotRanks, ShardedTensorsOfOtherRanksFollowOwnOnes) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(2);
  // Each sharded tensor is completely in one rank.
  add_shards(ranks[0], "a", {2, 2}, {{{0, 0}, counting({2, 2})}});
  add_shards(ranks[1], "b", {3}, {{{0}, counting({3}, 7)}});
  Ranks(ranks).save(folder / "s");
  EXPECT_THAT(open_snapshot(folder / "s", 0)["state"].keys(), ElementsAre("a", "b"));
  EXPECT_THAT(open_snapshot(folder / "s", 1)["state"].keys(), ElementsAre("b", "a"));
  EXPECT_THAT(floats(open_snapshot(folder / "s", 2)["state"].at("b")), ElementsAre(7, 8, 9));
}

TEST(SnapshotRanks, ABoxIsReadFromThePiecesThatIntersectIt) {
  const TemporaryFolder folder;
  std::vector<OfRank> ranks(2);
  for (std::int64_t i = 0; i < 2; ++i) {
    add_shards(ranks[static_cast<std::size_t>(i)], "w", {6, 4},
               {{{3 * i, 0}, counting({3, 4}, static_cast<float>(12 * i))}});
  }
  Ranks(ranks, {.slab_bytes = 1}).save(folder / "s");
  const TensorDict state = open_snapshot(folder / "s", 0)["state"];
  Tensor into = Tensor::zeros(DType::float32, {4, 2});
  read_boxes(std::vector<BoxRead>{{std::get<Leaf>(state.get("w")), {1, 1}, into}});
  EXPECT_THAT(floats(into), ElementsAre(5, 6, 9, 10, 13, 14, 17, 18));
  // Rows of the first rank can be read although the file of the other rank is missing.
  fs::remove(folder / "s" / "sharded" / "1" / "state" / "w_3_0");
  const TensorDict again = open_snapshot(folder / "s", 0)["state"];
  Tensor rows = Tensor::zeros(DType::float32, {2, 4});
  read_boxes(std::vector<BoxRead>{{std::get<Leaf>(again.get("w")), {1, 0}, rows}});
  EXPECT_THAT(floats(rows), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11));
}

}  // namespace
}  // namespace tenfold::test
