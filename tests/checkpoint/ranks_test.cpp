// Tests of steps that several processes (ranks) write. One process simulates all of them.

#include "checkpoint/ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "checkpoint/restoration.hpp"
#include "checkpoint/sample_states.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"

namespace tenfold::test {
namespace {

namespace fs = std::filesystem;
using checkpoint::RankedSave;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

template <class Work>
Error error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "expected an error";
  return Error(ErrorCode::io);
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

TensorDict own_state(std::int64_t rank) {
  NodeInfo dict;
  dict.kind = NodeKind::dict;
  TensorDict state(dict);
  TensorDict rng(dict);
  const std::vector<float> words = {static_cast<float>(rank), 7};
  rng.set("words", Tensor::from(std::span<const float>(words)));
  state.set("rng", rng);
  return state;
}

std::vector<CheckpointEntry> write_all(const CheckpointManager& manager, std::int64_t step,
                                       const std::string& path, std::int64_t num_ranks) {
  std::vector<CheckpointEntry> entries;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    const auto written =
        checkpoint::write_rank_entries(manager, step, path, rank, own_state(rank), nullptr);
    entries.insert(entries.end(), written.begin(), written.end());
  }
  return entries;
}

void save(const CheckpointManager& manager, std::int64_t step, std::int64_t num_ranks) {
  RankedSave save(manager, step, state_at(step), {}, {num_ranks, true, 0});
  save.write(nullptr);
  save.publish(write_all(manager, step, save.ranks_path(), num_ranks));
}

TEST(RankedSave, EntriesOfRanksAreInSeparateFolders) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save(manager, 5, 2);
  const fs::path step = folder / "step_00000005";
  EXPECT_THAT(names_in(step), UnorderedElementsAre("checkpoint.json", "epoch.json", "ranks",
                                                   "model.safetensors", "optimizer.safetensors"));
  EXPECT_THAT(names_in(step / "ranks"), UnorderedElementsAre("0", "1"));
  EXPECT_THAT(names_in(step / "ranks/1"), UnorderedElementsAre("rng.safetensors"));
  EXPECT_EQ(manager.metadata(5).world_size, 2);
  EXPECT_TRUE(manager.verify(5).ok());
  // A job with one process restores the entries of rank 0.
  const RestoredCheckpoint restored = manager.restore();
  EXPECT_THAT(restored.state.keys(), ElementsAre("model", "optimizer", "epoch", "rng"));
  EXPECT_EQ(values<float>(restored.state.at("rng", "words"))[0], 0);
  const TensorDict second = checkpoint::open_state(restored.path, restored.info, 1);
  EXPECT_EQ(values<float>(second.at("rng", "words"))[0], 1);
}

TEST(RankedSave, UnchangedEntriesOfRanksDoNotWarn) {
  const TemporaryFolder folder;
  const Warnings warnings;
  CheckpointManager manager(folder.path());
  save(manager, 5, 2);
  save(manager, 6, 2);
  EXPECT_THAT(warnings.all(), IsEmpty());
}

TEST(RankedSave, TheFolderOfAStepOpensWithTheEntriesOfEveryRank) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save(manager, 5, 2);
  const Path step = folder / "step_00000005";
  EXPECT_EQ(probe(step), "bundle");
  const TensorDict tree = open(step);
  EXPECT_THAT(tree.keys(), ElementsAre("model", "optimizer", "epoch", "ranks"));
  EXPECT_EQ(values<float>(tree.at("ranks", "0", "rng", "words"))[0], 0);
  EXPECT_EQ(values<float>(tree.at("ranks", "1", "rng", "words"))[0], 1);
  EXPECT_TRUE(verify(step).ok());
  EXPECT_NO_THROW(load(step, {.keys = {"ranks"}, .verify = true}));
}

TEST(RankedSave, AnEntryNamedRanksDoesNotHideThoseOfEveryRank) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  TensorDict state = state_at(5);
  state.set("ranks", Value("of a ladder"));
  RankedSave save(manager, 5, state, {}, {2, true, 0});
  save.write(nullptr);
  save.publish(write_all(manager, 5, save.ranks_path(), 2));
  const Path step = folder / "step_00000005";
  const TensorDict tree = open(step);
  EXPECT_THAT(tree.keys(), ElementsAre("model", "optimizer", "epoch", "ranks", "ranks_"));
  EXPECT_EQ(tree.value("ranks"), Value("of a ladder"));
  EXPECT_EQ(values<float>(tree.at("ranks_", "1", "rng", "words"))[0], 1);
  EXPECT_NO_THROW(load(step, {.keys = {"ranks_"}, .verify = true}));
  const Path own = step / "ranks/1/rng.safetensors";
  std::string bytes = read_bytes(own);
  bytes.back() ^= 1;
  write_bytes(own, bytes);
  EXPECT_NO_THROW(load(step, {.keys = {"ranks"}, .verify = true}));
  EXPECT_EQ(error_of([&] { load(step, {.keys = {"ranks_"}, .verify = true}); }).code(),
            ErrorCode::corrupt);
}

/// A plan of two ranks, each of which has two columns of a tensor.
checkpoint::RanksPlan sharded_plan() {
  NodeInfo dict;
  dict.kind = NodeKind::dict;
  TensorDict model(dict);
  model.set("w", Tensor::zeros(DType::float32, {3, 4}));
  TensorDict sharded(dict);
  sharded.set("big", model);
  return {2, false, 0, sharded, {{{0, {0, 0}, {3, 2}, 0}, {0, {0, 2}, {3, 2}, 1}}}};
}

std::vector<std::string> write_columns(const CheckpointManager& manager, const RankedSave& save,
                                       int rank) {
  const std::vector<float> numbers(6, static_cast<float>(rank + 1));
  TensorDict part;
  part.set("w", Tensor::from(std::span<const float>(numbers), {3, 2}));
  TensorDict parts;
  parts.set("big", part);
  return checkpoint::write_shards(manager, save.tickets(rank), parts, nullptr);
}

TEST(RankedSave, AShardedEntryOfAllRanksIsOneFile) {
  for (const char* format : {"safetensors", "memmap"}) {
    const TemporaryFolder folder;
    CheckpointManager manager(folder.path(), {.formats = {{"*", format}}});
    for (const std::int64_t step : {1, 2}) {
      RankedSave save(manager, step, state_at(step), {}, sharded_plan());
      save.write(nullptr);
      save.publish({}, {write_columns(manager, save, 0), write_columns(manager, save, 1)});
    }
    EXPECT_TRUE(manager.verify(2).ok());
    EXPECT_THAT(names_in(folder / "step_00000002"), testing::SizeIs(5));  // 4 entries, 1 document
    const RestoredCheckpoint restored = manager.restore();
    EXPECT_THAT(restored.state.keys(), ElementsAre("model", "optimizer", "epoch", "big"));
    EXPECT_THAT(values<float>(restored.state.at("big", "w")),
                ElementsAre(1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2));
  }
}

TEST(RankedSave, AStepWithAnUnwrittenPartIsNotPublished) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  {
    RankedSave save(manager, 1, state_at(1), {}, sharded_plan());
    save.write(nullptr);
    const auto first = write_columns(manager, save, 0);
    const Error error = error_of([&] { save.publish({}, {first}); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("tensor \"w\": expected a receipt for its box"));
  }
  EXPECT_THAT(manager.all_steps(), IsEmpty());
  CheckpointManager other(folder / "other", {.formats = {{"big", "pt"}}});
  EXPECT_THAT(error_of([&] { RankedSave save(other, 1, state_at(1), {}, sharded_plan()); }).what(),
              HasSubstr("entry \"big\": format: expected \"safetensors\" or \"memmap\""));
}

TEST(RankedSave, AnUnpublishedSaveLeavesNoFiles) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save(manager, 1, 2);
  {
    RankedSave save(manager, 2, state_at(2), {}, {2, true, 0});
    save.write(nullptr);
    write_all(manager, 2, save.ranks_path(), 2);
  }
  EXPECT_THAT(manager.all_steps(), ElementsAre(1));
  manager.close();
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step_00000001"));
}

TEST(RankedSave, ARankCannotWriteToTheFolderOfADeadSave) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  std::string old_path;
  {
    RankedSave dead(manager, 1, state_at(1), {}, {2, true, 0});
    old_path = dead.ranks_path();
  }
  RankedSave alive(manager, 1, state_at(1), {}, {2, true, 0});
  const Error error = error_of([&] { write_all(manager, 1, old_path, 1); });
  EXPECT_EQ(error.system_errno(), ENOENT) << error.what();
  EXPECT_THAT(error.what(), HasSubstr("the same shared directory"));
  alive.write(nullptr);
  alive.publish(write_all(manager, 1, alive.ranks_path(), 2));
  EXPECT_TRUE(manager.verify(1).ok());
}

TEST(RankedSave, AFileMissingOnRank0IsAnError) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  RankedSave save(manager, 1, state_at(1), {}, {2, true, 0});
  save.write(nullptr);
  std::vector<CheckpointEntry> entries = write_all(manager, 1, save.ranks_path(), 2);
  fs::remove(folder / save.ranks_path() / "1/rng.safetensors");
  EXPECT_THAT(error_of([&] { save.publish(entries); }).what(),
              HasSubstr("1/rng.safetensors: is missing"));
  EXPECT_THAT(manager.all_steps(), IsEmpty());
}

TEST(RankedSave, AnEntryCalledRanksIsRestored) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.formats = {{"*", "memmap"}}});
  TensorDict state = own_state(4);
  state.set("ranks", state_at(3).get("model"));
  RankedSave save(manager, 1, state, {}, {1, true, 0});
  save.write(nullptr);
  TensorDict own;
  own.set("queue", own_state(0).get("rng"));
  save.publish(checkpoint::write_rank_entries(manager, 1, save.ranks_path(), 0, own, nullptr));
  EXPECT_TRUE(manager.verify(1).ok());
  EXPECT_EQ(values<float>(manager.restore().state.at("ranks", "weight"))[0], 3);
}

TEST(RankedSave, RanksOfAnyWorldSizeVerifyEveryEntryTogether) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save(manager, 1, 3);
  fs::remove(folder / "step_00000001/ranks/2/rng.safetensors");
  checkpoint::Restoration restoration(manager, {});
  const checkpoint::Step& step = restoration.candidates().front();
  const auto opens = [&](std::int64_t rank, std::int64_t world_size) {
    try {
      restoration.open(step, CheckpointCheck::full, {rank, world_size}, nullptr);
      return true;
    } catch (const Error& error) {
      EXPECT_TRUE(checkpoint::is_damage(error));
      return false;
    }
  };
  EXPECT_FALSE(opens(0, 1));
  EXPECT_FALSE(opens(0, 2));
  EXPECT_TRUE(opens(1, 2));
  EXPECT_FALSE(opens(2, 3));
  EXPECT_TRUE(opens(0, 3));
}

TEST(RankedSave, AnExportReportsOmittedEntries) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save(manager, 1, 2);
  const Warnings warnings;
  manager.export_step(1, folder / "model.safetensors", {.keys = {"model"}});
  EXPECT_THAT(warnings.all(), IsEmpty());
  manager.export_step(1, folder / "all.safetensors");
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("\"rng\": only the entry of rank 0 of 2")));
}

TEST(EntryDigests, DistinguishStructureFromValues) {
  const auto digests = [](const TensorDict& state) { return checkpoint::entry_digests(state); };
  const auto a = digests(state_at(1));
  const auto b = digests(state_at(2));
  ASSERT_EQ(a.size(), 3U);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].structure, b[i].structure);
  EXPECT_EQ(a[1].values, b[1].values);
  EXPECT_NE(a[2].values, b[2].values);  // entry 2 is the epoch
  TensorDict other = state_at(1);
  TensorDict model = other["model"];
  const std::vector<float> four(4);
  model.set("bias", Tensor::from(std::span<const float>(four)));
  other.set("model", model);
  EXPECT_NE(digests(other)[0].structure, a[0].structure);
  EXPECT_NE(checkpoint::tensor_digests(state_at(1))[0].second,
            checkpoint::tensor_digests(state_at(2))[0].second);
  EXPECT_EQ(checkpoint::tensor_digests(state_at(1)), checkpoint::tensor_digests(state_at(1)));
}

}  // namespace
}  // namespace tenfold::test
