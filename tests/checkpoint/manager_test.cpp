#include <tenfold/checkpoint_manager.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "checkpoint/sample_states.hpp"
#include "support/file_limit.hpp"
#include "support/files.hpp"
#include "support/leases.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"
#include "support/watch_changes.hpp"

namespace tenfold::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Steps = std::vector<std::int64_t>;

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

void save_steps(CheckpointManager& manager, const Steps& steps) {
  for (const std::int64_t step : steps) manager.save(step, state_at(step));
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

/// Replaces a file by a copy with another last byte. In a file of tensors, this damages a tensor.
void damage(const fs::path& file) {
  std::string bytes = read_bytes(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(file, bytes);
}

/// Changes the last byte of a file in place, so that the file keeps its inode.
void damage_in_place(const fs::path& file) {
  const char last = read_bytes(file).back();
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(-1, std::ios::end)
      .put(static_cast<char>(last ^ 1));
}

TEST(CheckpointManager, AFileInPlaceOfTheDirectoryIsAnError) {
  const TemporaryFolder folder;
  std::ofstream(folder / "run") << "notes";
  const Error error = error_of([&] { CheckpointManager manager(folder / "run"); });
  EXPECT_EQ(error.system_errno(), ENOTDIR);
  EXPECT_THAT(error.what(), HasSubstr("run: expected a directory of steps, found a file"));
}

TEST(CheckpointManager, AStepHasAFileForEachEntry) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run");
  EXPECT_EQ(manager.save(500, state_at(500)), folder / "run/step_00000500");
  EXPECT_THAT(names_in(folder / "run/step_00000500"),
              UnorderedElementsAre("checkpoint.json", "model.safetensors", "optimizer.safetensors",
                                   "epoch.json"));
  EXPECT_EQ(read_bytes(folder / "run/step_00000500/epoch.json"), "500\n");
  EXPECT_EQ(values<float>(open(folder / "run/step_00000500/model.safetensors").at("weight"))[0],
            500);
}

TEST(CheckpointManager, RestoreReturnsTheNewestStep) {
  const TemporaryFolder folder;
  CheckpointManager(folder.path()).save(1, state_at(1));
  CheckpointManager manager(folder.path());
  EXPECT_TRUE(is_state_of(manager.restore().state, 1));
  save_steps(manager, {2, 3});
  EXPECT_EQ(manager.restore().info.step, 3);
  EXPECT_TRUE(is_state_of(manager.restore().state, 3));
  EXPECT_TRUE(is_state_of(manager.restore({.step = 2}).state, 2));
}

TEST(CheckpointManager, StepsOfThePythonPackageAreRead) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  fs::copy(std::string(TENFOLD_TEST_DATA) + "/checkpoint/python", run, fs::copy_options::recursive);
  CheckpointManager manager(run, {.best = "loss"});
  EXPECT_THAT(manager.all_steps(), ElementsAre(1, 2, 3));
  for (const std::int64_t step : manager.all_steps()) EXPECT_TRUE(manager.verify(step).ok());
  EXPECT_EQ(manager.best_step(), 3);
  const RestoredCheckpoint restored = manager.restore();
  EXPECT_EQ(restored.info.lineage.size(), 2U);
  EXPECT_EQ(restored.state.value("epoch"), Value(3));
  EXPECT_EQ(restored.state.at("model", "0.weight").shape(), (Shape{4, 3}));
  EXPECT_EQ(restored.state.value("pair"), Value(Value::Tuple{{Value(1), Value("a")}}));
  manager.save(4, restored.state);
  EXPECT_EQ(manager.latest_step(), 4);
}

TEST(CheckpointManager, EntriesThatAreTuplesOrTensorsRoundTrip) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  TensorDict state = state_at(1);
  const Value tuple = Value::Tuple{{Value(1), Value("a")}};
  const std::vector<float> one = {7};
  state.set("betas", tuple);
  state.set("scale", Tensor::from(std::span<const float>(one)));
  manager.save(1, state);
  const TensorDict found = manager.restore().state;
  EXPECT_EQ(found.value("betas"), tuple);
  EXPECT_EQ(values<float>(found.at("scale")), one);
}

TEST(CheckpointManager, EntriesGetTheFormatOfTheirRule) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.formats = {{"*", "memmap"}, {"model", "pt"}}});
  manager.save(1, state_at(1));
  EXPECT_THAT(names_in(folder / "step_00000001"),
              UnorderedElementsAre("checkpoint.json", "model.pt", "optimizer", "epoch.json"));
  EXPECT_TRUE(manager.verify(1).ok());
  EXPECT_TRUE(is_state_of(manager.restore().state, 1));
  EXPECT_EQ(error_of([&] { CheckpointManager(folder.path(), {.formats = {{"*", "zip"}}}); }).code(),
            ErrorCode::invalid_argument);
}

TEST(CheckpointManager, EntriesMayHaveNamesThatFilesCannotHave) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  TensorDict state;
  const std::vector<std::string> names = {
      "a/b", "..", ".hidden", "checkpoint", "x.json",
      "x",   "",   "50%",     "a\nb",       std::string(400, 'n')};
  for (const std::string& name : names) state.set(name, Value(name));
  manager.save(1, state);
  const TensorDict found = manager.restore().state;
  EXPECT_EQ(found.keys(), names);
  for (const std::string& name : names) EXPECT_EQ(found.value(name), Value(name));
}

TEST(CheckpointManager, UnsupportedStateIsRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.formats = {{"*", "npz"}}});
  const Error error = error_of([&] { manager.save(1, state_at(1)); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.what(), HasSubstr("lr"));
  EXPECT_THAT(manager.all_steps(), IsEmpty());
  manager.close();
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST(CheckpointManager, NamesThatAreNotUtf8AreRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run");
  const auto expect = [](const std::string& part, const auto& work) {
    const Error error = error_of(work);
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr(part));
    EXPECT_THAT(error.what(), HasSubstr("expected a name in UTF-8, found other bytes"));
  };
  manager.save(1, state_at(1));
  const std::string document = manager.metadata_json(1);
  for (const std::string name : {"a\xed\xb2\x80", "a\xff"}) {
    TensorDict with_value = state_at(2);
    with_value.set(name, Value(1));
    TensorDict with_tensors = state_at(2);
    with_tensors.set(name, state_at(2).get("model"));
    for (const TensorDict& state : {with_value, with_tensors}) {
      expect("entry \"a\\x", [&] { manager.save(2, state); });
    }
    expect("metric \"a\\x", [&] { manager.save(2, state_at(2), {.metrics = {{name, 1.0}}}); });
    expect("metric \"a\\x", [&] { manager.set_metrics(1, {{name, 1.0}}); });
  }
  EXPECT_EQ(manager.metadata_json(1), document);
  EXPECT_THAT(manager.all_steps(), ElementsAre(1));
  manager.close();
  EXPECT_THAT(names_in(folder / "run"), ElementsAre("step_00000001"));
}

TEST(CheckpointManager, ADamagedStepIsSkipped) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save_steps(manager, {1, 2, 3});
  damage(folder / "step_00000003/model.safetensors");
  fs::remove(folder / "step_00000002/epoch.json");
  const Warnings warnings;
  const RestoredCheckpoint restored = manager.restore();
  EXPECT_TRUE(is_state_of(restored.state, 1));
  ASSERT_EQ(restored.skipped.size(), 2U);
  EXPECT_EQ(restored.skipped[0].step, 3);
  EXPECT_THAT(restored.skipped[1].problem, HasSubstr("epoch.json: is missing"));
  EXPECT_EQ(warnings.all().size(), 2U);
  EXPECT_EQ(error_of([&] { manager.restore({.step = 3}); }).code(), ErrorCode::corrupt);
  fs::remove(folder / "step_00000001/model.safetensors");
  EXPECT_EQ(error_of([&] { manager.restore(); }).code(), ErrorCode::corrupt);
}

TEST(CheckpointManager, AnErrorOfARestoreNamesEveryDamagedStep) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save_steps(manager, {1, 2});
  damage(folder / "step_00000002/model.safetensors");
  fs::remove(folder / "step_00000001/epoch.json");
  const Warnings warnings;
  const Error error = error_of([&] { manager.restore(); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("found 2 that are damaged: step 2: "),
                    HasSubstr("step_00000002/model.safetensors: "), HasSubstr("; step 1: "),
                    HasSubstr("step_00000001/epoch.json: is missing"),
                    HasSubstr("copy the folder of a step from a backup")));
}

TEST(CheckpointManager, AStepWithADamagedDocumentIsNotConsideredAbsent) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  manager.save(1, state_at(1));
  const std::string document = folder / "step_00000001/checkpoint.json";
  const std::string text = read_bytes(document);
  const Warnings warnings;
  const std::string no_json = text.substr(0, text.size() / 2);
  std::string no_step = text;
  no_step.replace(no_step.find("\"step\""), 6, "\"stop\"");
  for (const std::string& damaged : {std::string(), no_json, no_step}) {
    write_bytes(document, damaged);
    for (const CheckpointRestoreOptions& options :
         {CheckpointRestoreOptions(), CheckpointRestoreOptions{.step = 1}}) {
      const Error error = error_of([&] { manager.restore(options); });
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("step_00000001/checkpoint.json"));
    }
    EXPECT_THAT(error_of([&] { manager.restore(); }).what(),
                AllOf(HasSubstr("expected a step to restore, found 1 that is damaged: step 1: "),
                      HasSubstr("copy the folder of a step from a backup")));
    const VerifyReport report = manager.verify(1);
    ASSERT_EQ(report.problems.size(), 1U);
    EXPECT_THAT(report.problems[0].path, HasSubstr("step_00000001/checkpoint.json"));
  }
  // A step in a newer version of the format is unsupported, and is not reported as damaged or
  // absent.
  std::string newer = text;
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 2");
  write_bytes(document, newer);
  const Error error = error_of([&] { manager.restore(); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(
      error.what(),
      AllOf(HasSubstr("expected a step to restore, found 1 that cannot be read: step 1: "),
            HasSubstr("\"version\": expected 1 at most, found 2"), Not(HasSubstr("backup"))));
  EXPECT_EQ(error_of([&] { manager.verify(1); }).code(), ErrorCode::unsupported);
  // Without a document, a folder with the name of a step is not a step.
  fs::remove(document);
  const Error absent = error_of([&] { manager.restore(); });
  EXPECT_EQ(absent.code(), ErrorCode::file_not_found);
  EXPECT_THAT(absent.what(), HasSubstr("step_00000001: is not a step: it has no checkpoint.json"));
  const VerifyReport report = manager.verify(1);
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_THAT(report.problems[0].what, HasSubstr("it has no checkpoint.json"));
  EXPECT_EQ(error_of([&] { manager.verify(2); }).code(), ErrorCode::key_not_found);
}

TEST(CheckpointManager, AStepWithADamagedDocumentIsSkipped) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save_steps(manager, {1, 2});
  write_bytes(folder / "step_00000002/checkpoint.json", "{");
  const Warnings warnings;
  EXPECT_EQ(manager.restore().info.step, 1);
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("the step is skipped and not pruned")));
}

TEST(CheckpointManager, AChangedByteOfTheNewestDocumentDoesNotHideOlderSteps) {
  const TemporaryFolder folder;
  const CheckpointManagerOptions options{.max_to_keep = 1, .durable = false};
  {
    CheckpointManager manager(folder.path(), {.durable = false});
    manager.save(2, state_at(2), {.metrics = {{"loss", 0.5}}});
    manager.save(3, state_at(3), {.metrics = {{"loss", 0.25}}});
  }
  const fs::path document = folder / "step_00000003/checkpoint.json";
  const std::string text = read_bytes(document);
  const std::string checksum = ",\n\"checksum\": \"";  // without it, a document has no checksum
  const std::size_t at = text.rfind(checksum);
  const Warnings warnings;
  for (std::size_t i = 0; i < text.size(); i += 3) {
    if (i >= at && i < at + checksum.size()) continue;
    SCOPED_TRACE(text.substr(0, i));
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    write_bytes(document, changed);
    EXPECT_EQ(CheckpointManager(folder.path()).restore().info.step, 2);
    CheckpointManager manager(folder.path(), options);
    EXPECT_THAT(manager.prune(), IsEmpty());
    EXPECT_EQ(manager.latest_step(), 2);
  }
  EXPECT_THAT(warnings.all(), Contains(AllOf(HasSubstr("step 3 is skipped"),
                                             HasSubstr("checkpoint.json: checksum: expected"))));
}

TEST(CheckpointManager, AStepWhoseDocumentHasAnInvalidChecksumIsSkippedWithoutChecks) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save_steps(manager, {10, 30});
  manager.restore({.step = 10});
  manager.save(20, state_at(20));
  const fs::path document = folder / "step_00000030/checkpoint.json";
  std::string text = read_bytes(document);
  text.replace(text.find("\"time\": \"2"), 10, "\"time\": \"1");
  write_bytes(document, text);
  const Warnings warnings;
  EXPECT_EQ(manager.restore({.check = CheckpointCheck::none}).info.step, 20);
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("step 30 is skipped")));
  EXPECT_EQ(manager.restore({.step = 30, .check = CheckpointCheck::none}).info.step, 30);
}

TEST(CheckpointManager, AStepWhoseDocumentHasAnInvalidChecksumIsNotTheBest) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.best = "loss"});
  manager.save(1, state_at(1), {.metrics = {{"loss", 0.25}}});
  manager.save(2, state_at(2), {.metrics = {{"loss", 0.5}}});
  const fs::path document = folder / "step_00000002/checkpoint.json";
  std::string text = read_bytes(document);
  text.replace(text.find("0.5"), 3, "0.1");
  write_bytes(document, text);
  EXPECT_EQ(manager.best_step(), 1);
  EXPECT_EQ(manager.latest_step(), 1);
  manager.save(3, state_at(3));
  EXPECT_GT(manager.metadata(3).seq, 1'000'000);
}

TEST(CheckpointManager, NewerStepsWithoutADocumentAreListedAsDamaged) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save_steps(manager, {1, 2, 3, 4, 5});
  EXPECT_THAT(manager.unreadable_steps(), IsEmpty());
  write_bytes(folder / "step_00000001/checkpoint.json", "{");
  write_bytes(folder / "step_00000005/checkpoint.json", "{");
  fs::remove(folder / "step_00000003/checkpoint.json");
  damage(folder / "step_00000004/model.safetensors");
  const Warnings warnings;
  EXPECT_THAT(manager.unreadable_steps(), ElementsAre(1, 3, 5));
  const RestoredCheckpoint restored = manager.restore();
  EXPECT_EQ(restored.info.step, 2);
  Steps skipped;
  for (const SkippedCheckpoint& step : restored.skipped) skipped.push_back(step.step);
  EXPECT_THAT(skipped, ElementsAre(5, 4, 3));
  damage(folder / "step_00000002/model.safetensors");
  EXPECT_THAT(error_of([&] { manager.restore(); }).what(), HasSubstr("found 5 that are damaged"));
}

TEST(CheckpointManager, ASaveWhileAStepCannotBeReadRemainsTheMostRecentOne) {
  const TemporaryFolder folder;
  {
    CheckpointManager manager(folder.path(), {.max_to_keep = 1});
    save_steps(manager, {1});
    const fs::path document = folder / "step_00000001/checkpoint.json";
    const std::string bytes = read_bytes(document);
    write_bytes(document, "{");
    save_steps(manager, {2});
    write_bytes(document, bytes);
    EXPECT_EQ(manager.latest_step(), 2);
    save_steps(manager, {3});
    EXPECT_THAT(manager.all_steps(), ElementsAre(3));
  }
  EXPECT_EQ(CheckpointManager(folder.path()).latest_step(), 3);
}

TEST(CheckpointManager, VerifyDetectsChangesOfAStep) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(),
                            {.formats = {{"*", "safetensors"}, {"optimizer", "memmap"}}});
  save_steps(manager, {1, 2});
  EXPECT_TRUE(manager.verify(1).ok());
  const auto expect_found = [&](const std::function<void()>& change) {
    const std::string before = folder / "copy";
    fs::copy(folder / "step_00000001", before, fs::copy_options::recursive);
    change();
    EXPECT_FALSE(manager.verify(1).ok());
    fs::remove_all(folder / "step_00000001");
    fs::rename(before, folder / "step_00000001");
    EXPECT_TRUE(manager.verify(1).ok());
  };
  // A valid file of another step.
  expect_found([&] {
    fs::copy_file(folder / "step_00000002/model.safetensors",
                  folder / "step_00000001/model.safetensors", fs::copy_options::overwrite_existing);
  });
  expect_found([&] { damage(folder / "step_00000001/model.safetensors"); });
  expect_found([&] { damage(folder / "step_00000001/optimizer/momentum.memmap"); });
  expect_found([&] { fs::remove(folder / "step_00000001/optimizer/%checksums"); });
  expect_found([&] { write_bytes(folder / "step_00000001/epoch.json", "2\n"); });
  expect_found([&] {
    std::string text = read_bytes(folder / "step_00000001/checkpoint.json");
    text.replace(text.find("\"world_size\""), 0, "\"extra\": 2,\n");
    text.erase(text.find("\"extra\": null,\n"), 15);
    write_bytes(folder / "step_00000001/checkpoint.json", text);
  });
}

TEST(CheckpointManager, AStepThatIsSavedAgainIsReplacedWithAWarning) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save_steps(manager, {1, 2});
  const Warnings warnings;
  TensorDict other = state_at(2);
  other.set("epoch", Value(7));
  manager.save(2, other);
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("step 2 is replaced")));
  manager.save(2, other, {.force = true});
  EXPECT_EQ(warnings.all().size(), 1U);
  EXPECT_EQ(manager.restore().state.value("epoch"), Value(7));
  EXPECT_THAT(manager.all_steps(), ElementsAre(1, 2));
}

TEST(CheckpointManager, AReturnToAnEarlierStepRemovesLaterOnesFromTheLineage) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save_steps(manager, {100, 200, 300});
  manager.restore({.step = 100});
  EXPECT_EQ(manager.latest_step(), 300);  // until the next save
  manager.save(150, state_at(150));
  EXPECT_EQ(manager.latest_step(), 150);
  EXPECT_THAT(manager.all_steps(), ElementsAre(100, 150, 200, 300));
  manager.save(250, state_at(250));
  EXPECT_EQ(manager.restore().info.step, 250);
  std::vector<std::int64_t> line;
  for (const CheckpointStatus& step : manager.status()) {
    if (step.is_in_current_lineage) line.push_back(step.info.step);
  }
  EXPECT_THAT(line, ElementsAre(100, 150, 250));
  // A new manager, as in another process, reads the same lineage from disk.
  EXPECT_EQ(CheckpointManager(folder.path()).latest_step(), 250);
}

TEST(CheckpointManager, AStepBelowTheLastOneIsSavedAndBecomesTheLatest) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save_steps(manager, {10, 20, 5});
  EXPECT_EQ(manager.latest_step(), 5);
  save_steps(manager, {15});
  EXPECT_EQ(manager.latest_step(), 15);
  EXPECT_THAT(manager.all_steps(), ElementsAre(5, 10, 15, 20));
}

TEST(CheckpointManager, SavesAfterAReturnToAnEarlierStepDoNotContinueTheStepsAfterIt) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save_steps(manager, {1, 5, 10, 4, 20});
  std::vector<std::int64_t> line;
  for (const CheckpointStatus& step : manager.status()) {
    if (step.is_in_current_lineage) line.push_back(step.info.step);
  }
  EXPECT_THAT(line, ElementsAre(1, 4, 20));
}

TEST(CheckpointManager, PruningKeepsStepsOfOtherLines) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.max_to_keep = 2});
  save_steps(manager, {100, 101, 102, 1});
  EXPECT_THAT(manager.all_steps(), ElementsAre(1, 101, 102));
  save_steps(manager, {2, 3});
  EXPECT_THAT(manager.all_steps(), ElementsAre(2, 3, 101, 102));
  manager.close();
  // A run that restores nothing does not know whether anybody needs the steps of other runs, so it
  // prunes only its own.
  const Warnings warnings;
  CheckpointManager other(folder.path(), {.max_to_keep = 1});
  save_steps(other, {4, 5});
  EXPECT_THAT(other.all_steps(), ElementsAre(2, 3, 5, 101, 102));
  other.restore({.step = 5, .discard_later = true});
  EXPECT_THAT(other.all_steps(), ElementsAre(2, 3, 5));
}

TEST(CheckpointManager, ExtraThatADocumentCannotStoreIsRefusedBeforeTheSave) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  const auto nested = [](int depth) {
    Value value(1);
    for (int i = 0; i < depth; ++i) value = Value(Value::List{{std::move(value)}});
    return value;
  };
  manager.save(1, state_at(1), {.extra = nested(511)});
  EXPECT_EQ(manager.metadata(1).extra, nested(511));
  const auto code_of = [&](const Value& extra) {
    return error_of([&] { manager.save(2, state_at(2), {.extra = extra}); }).code();
  };
  EXPECT_EQ(code_of(nested(512)), ErrorCode::unsupported);
  EXPECT_EQ(code_of(Value(std::string(std::size_t{64} << 20, 'x'))), ErrorCode::unsupported);
  EXPECT_THAT(names_in(folder.path()),
              UnorderedElementsAre("step_00000001", ".writer.tenfold-lease"));
}

TEST(CheckpointManager, DiscardLaterRemovesLaterSteps) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save_steps(manager, {1, 2, 3});
  manager.restore({.step = 1, .discard_later = true});
  EXPECT_THAT(manager.all_steps(), ElementsAre(1));
  manager.wait();
  EXPECT_THAT(names_in(folder.path()),
              UnorderedElementsAre("step_00000001", ".writer.tenfold-lease"));
}

TEST(CheckpointManager, TheNewestStepsOfTheLineageAreKept) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.max_to_keep = 2, .keep_every = 4});
  save_steps(manager, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_THAT(manager.all_steps(), ElementsAre(4, 8, 9));
  manager.wait();
  EXPECT_THAT(names_in(folder.path()),
              UnorderedElementsAre("step_00000004", "step_00000008", "step_00000009",
                                   ".writer.tenfold-lease"));
}

TEST(CheckpointManager, ARestartContinuesRetentionOfThePreviousRun) {
  const TemporaryFolder folder;
  const CheckpointManagerOptions options = {.max_to_keep = 2, .best = "loss"};
  {
    CheckpointManager manager(folder.path(), options);
    manager.save(1, state_at(1), {.metrics = {{"loss", 0.1}}});
    manager.save(2, state_at(2), {.metrics = {{"loss", 0.5}}});
    manager.save(3, state_at(3), {.metrics = {{"loss", 0.4}}});
  }
  CheckpointManager manager(folder.path(), options);
  manager.restore();
  manager.save(4, state_at(4), {.metrics = {{"loss", 0.3}}});
  EXPECT_EQ(manager.best_step(), 1);
  EXPECT_THAT(manager.all_steps(), ElementsAre(1, 3, 4));
}

TEST(CheckpointManager, NumbersThatJsonLacksAreRefusedInExtraAndVersions) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  for (const double number : {std::nan(""), -std::numeric_limits<double>::infinity()}) {
    const Value nested = Value::Object{{{"a", Value::List{{1.0, number}}}}};
    for (const bool is_extra : {true, false}) {
      CheckpointSaveOptions options;
      (is_extra ? options.extra : options.versions) = nested;
      try {
        manager.save(1, state_at(1), options);
        ADD_FAILURE() << number;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::unsupported);
        EXPECT_THAT(error.what(), HasSubstr(is_extra ? "extra: expected finite numbers"
                                                     : "versions: expected finite numbers"));
      }
    }
  }
  EXPECT_THAT(manager.all_steps(), testing::IsEmpty());
  manager.save(1, state_at(1), {.extra = Value::Object{{{"a", 0.5}}}});
}

TEST(CheckpointManager, AStepWithoutAFiniteMetricIsNeverTheBest) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.best = "acc", .best_mode = BestMode::max});
  const Warnings warnings;
  manager.save(1, state_at(1), {.metrics = {{"acc", 0.5}}});
  manager.save(2, state_at(2), {.metrics = {{"acc", std::nan("")}}});
  manager.save(3, state_at(3), {.metrics = {{"acc", std::numeric_limits<double>::infinity()}}});
  manager.save(4, state_at(4));
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("never the best")));
  EXPECT_EQ(manager.best_step(), 1);
  EXPECT_TRUE(std::isnan(manager.metadata(2).metrics.at("acc")));
  manager.set_metrics(4, {{"acc", 0.5}});
  EXPECT_EQ(manager.best_step(), 4);  // the newer one of two steps with equal metrics
  EXPECT_TRUE(manager.verify(4).ok());
}

/// Returns the rules that keep a step.
std::vector<std::string> rules_of(const CheckpointManager& manager, std::int64_t step) {
  for (const CheckpointStatus& status : manager.status()) {
    if (status.info.step == step) return status.kept_by;
  }
  ADD_FAILURE() << "no step " << step;
  return {};
}

/// Gives a file a later modification time, as a write does. A real write within a few milliseconds
/// of an earlier one may leave the time unchanged.
void make_newer(const fs::path& file) {
  fs::last_write_time(file, fs::file_time_type::clock::now() + std::chrono::hours(1));
}

TEST(CheckpointManager, BestStepWarnsOfAMetricThatNoStepHas) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.best = "los"});
  const Warnings warnings;
  EXPECT_EQ(manager.best_step(), std::nullopt);
  CheckpointManager(folder.path()).save(1, state_at(1), {.metrics = {{"acc", 0.5}, {"loss", 1}}});
  EXPECT_EQ(manager.best_step(), std::nullopt);
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr(R"(metric "los": expected a metric of the )"
                                                    R"(steps ("acc", "loss"), found no step)")));
}

TEST(CheckpointManager, AStepWhoseFilesChangedNoLongerCountsAsVerified) {
  const auto expect_unverified = [](bool is_sound,
                                    const std::function<void(const fs::path&)>& change) {
    const TemporaryFolder folder;
    CheckpointManager manager(folder.path(),
                              {.max_to_keep = 1,
                               .keep_every = 1,
                               .formats = {{"*", "safetensors"}, {"optimizer", "memmap"}}});
    save_steps(manager, {1, 2});
    EXPECT_THAT(rules_of(manager, 2), ElementsAre("newest", "every 1", "verified"));
    EXPECT_THAT(rules_of(manager, 1), ElementsAre("every 1"));
    change(folder / "step_00000002");
    EXPECT_THAT(rules_of(manager, 2), ElementsAre("newest", "every 1"));
    EXPECT_THAT(rules_of(manager, 1), ElementsAre("every 1", "verified"));
    EXPECT_EQ(manager.verify(2).ok(), is_sound);
    if (!is_sound) return;
    EXPECT_THAT(rules_of(manager, 2), ElementsAre("newest", "every 1", "verified"));
  };
  for (const char* name : {"model.safetensors", "epoch.json", "optimizer/momentum.memmap"}) {
    SCOPED_TRACE(name);
    expect_unverified(true, [&](const fs::path& step) { make_newer(step / name); });
    expect_unverified(false, [&](const fs::path& step) {
      damage(step / name);
      make_newer(step / name);
    });
    expect_unverified(true, [&](const fs::path& step) {  // equal bytes in a new file
      fs::copy_file(step / name, step / "copy");
      fs::rename(step / "copy", step / name);
    });
    expect_unverified(false, [&](const fs::path& step) { fs::remove(step / name); });
  }
  // A copy of the step, as from a backup.
  expect_unverified(true, [](const fs::path& step) {
    const fs::path copy = step.parent_path() / "copy";
    fs::copy(step, copy, fs::copy_options::recursive);
    fs::remove_all(step);
    fs::rename(copy, step);
  });
}

TEST(CheckpointManager, AStepStillCountsAsVerifiedAfterMetricsAreSet) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.max_to_keep = 1});
  manager.save(1, state_at(1));
  CheckpointManager(folder.path()).set_metrics(1, {{"loss", 0.5}});
  EXPECT_THAT(rules_of(manager, 1), ElementsAre("newest", "verified"));
}

TEST(CheckpointManager, SettingMetricsDoesNotHideDamageOfTheDocument) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  manager.save(1, state_at(1), {.metrics = {{"loss", 0.25}}});
  const fs::path document = folder / "step_00000001/checkpoint.json";
  std::string text = read_bytes(document);
  const std::string loss = R"("loss":0.25)";
  const std::size_t at = text.find(loss);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, loss.size(), R"("loss":0.05)");
  write_bytes(document, text);
  const Error error = error_of([&] { manager.set_metrics(1, {{"acc", 0.5}}); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_THAT(error.what(), HasSubstr("checkpoint.json: checksum"));
  EXPECT_EQ(read_bytes(document), text);
  EXPECT_FALSE(manager.verify(1).ok());
}

TEST(CheckpointManager, RetentionCountsADamagedStepOnlyAfterItsFilesAreRepaired) {
  for (const bool is_repaired : {false, true}) {
    const TemporaryFolder folder;
    CheckpointManager manager(folder.path(), {.max_to_keep = 2});
    save_steps(manager, {1, 2});
    const fs::path file = folder / "step_00000002/model.safetensors";
    const std::string bytes = read_bytes(file);
    damage(file);
    EXPECT_FALSE(manager.verify(2).ok());
    if (is_repaired) {
      write_bytes(file, bytes);
      make_newer(file);
    }
    manager.save(3, state_at(3));
    EXPECT_THAT(manager.all_steps(), is_repaired ? ElementsAre(2, 3) : ElementsAre(1, 3));
  }
}

TEST(CheckpointManager, AHeldStepIsNotPruned) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.max_to_keep = 1});
  save_steps(manager, {1});
  CheckpointManager evaluation(folder.path());
  CheckpointHold hold = evaluation.hold(1);
  CheckpointHold second = evaluation.hold(1);
  save_steps(manager, {2, 3});
  EXPECT_THAT(manager.all_steps(), ElementsAre(1, 3));
  EXPECT_EQ(error_of([&] { manager.remove(1); }).system_errno(), EBUSY);
  hold.release();
  EXPECT_THAT(manager.prune(), IsEmpty());
  second.release();
  EXPECT_THAT(manager.prune(), ElementsAre(1));
  EXPECT_EQ(error_of([&] { evaluation.hold(1); }).code(), ErrorCode::key_not_found);
}

TEST(CheckpointManager, AStepHasALimitedNumberOfHolds) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  save_steps(manager, {1});
  CheckpointHold hold = manager.hold(1);
  const std::string name = ".hold-step_00000001-";
  const Path lease = fs::read_symlink(folder / (name + "0.tenfold-lease"));
  for (int i = 1; i < 1024; ++i) {
    fs::create_symlink(lease, folder / (name + std::to_string(i) + ".tenfold-lease"));
  }
  const Error error = error_of([&] { manager.hold(1); });
  EXPECT_EQ(error.system_errno(), EBUSY);
  EXPECT_THAT(error.what(), HasSubstr("expected fewer than 1024 holds, found 1024; release one"));
}

TEST(CheckpointManager, AHoldEndsWithItsProcess) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.max_to_keep = 1});
  save_steps(manager, {1});
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      CheckpointHold hold = CheckpointManager(folder.path()).hold(1);
      ::_exit(0);
    } catch (...) {
      ::_exit(1);  // otherwise the child would run the remaining tests
    }
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  save_steps(manager, {2});
  EXPECT_THAT(manager.all_steps(), ElementsAre(2));
}

TEST(CheckpointManager, ASecondWriterIsRefused) {
  const TemporaryFolder folder;
  CheckpointManager first(folder.path());
  first.save(1, state_at(1));
  CheckpointManager second(folder.path());
  const Error error = error_of([&] { second.save(2, state_at(2)); });
  EXPECT_EQ(error.system_errno(), EBUSY);
  EXPECT_THAT(error.what(), HasSubstr("process " + std::to_string(::getpid()) + " on "));
  EXPECT_EQ(second.latest_step(), 1);
  second.set_metrics(1, {{"loss", 1}});
  first.close();
  second.restore();
  second.save(2, state_at(2));
  EXPECT_THAT(first.all_steps(), ElementsAre(1, 2));
}

TEST(CheckpointManager, ALostLeaseIsNoticedBeforeAStepIsPublished) {
  for (const std::string name : {"model.safetensors", "checkpoint.json"}) {
    SCOPED_TRACE("lost before the creation of " + name);
    const TemporaryFolder folder;
    CheckpointManager manager(folder.path(), {.max_to_keep = 1});
    manager.save(1, state_at(1));
    bool is_lost = false;
    {
      const WatchChanges watch([&](const os::Change& change) {
        const bool creates = change.kind == os::Change::Kind::create_file;
        if (!creates || change.name.find(name) == std::string::npos) return;
        if (std::exchange(is_lost, true)) return;
        take_over(folder / ".writer.tenfold-lease");
      });
      const Error error = error_of([&] { manager.save(2, state_at(2)); });
      EXPECT_EQ(error.system_errno(), EBUSY);
      EXPECT_THAT(error.what(), HasSubstr("another process took over"));
    }
    EXPECT_TRUE(is_lost);
    EXPECT_EQ(error_of([&] { manager.prune(); }).system_errno(), EBUSY);
    EXPECT_EQ(error_of([&] { manager.remove(1); }).system_errno(), EBUSY);
    manager.close();
    EXPECT_THAT(names_in(folder.path()),
                UnorderedElementsAre("step_00000001", ".writer.tenfold-lease"));
  }
}

TEST(CheckpointManager, AMovedDirectoryIsNeitherWrittenNorPruned) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  const std::string moved = folder / "moved";
  CheckpointManager manager(run, {.max_to_keep = 1});
  manager.save(1, state_at(1));
  fs::rename(run, moved);
  EXPECT_EQ(error_of([&] { manager.save(2, state_at(2)); }).system_errno(), ESTALE);
  EXPECT_FALSE(fs::exists(run));
  CheckpointManager other(run);
  save_steps(other, {1, 2});
  EXPECT_EQ(error_of([&] { manager.save(3, state_at(3)); }).system_errno(), ESTALE);
  EXPECT_EQ(error_of([&] { manager.prune(); }).system_errno(), ESTALE);
  EXPECT_EQ(error_of([&] { manager.remove(1); }).system_errno(), ESTALE);
  EXPECT_THAT(other.all_steps(), ElementsAre(1, 2));
  EXPECT_THAT(CheckpointManager(moved).all_steps(), ElementsAre(1));
  other.close();
  fs::remove_all(run);
  fs::rename(moved, run);
  manager.save(2, state_at(2));
  EXPECT_THAT(manager.all_steps(), ElementsAre(2));
}

TEST(CheckpointManager, SaveInAForkedChildIsRefused) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  manager.save(1, state_at(1));
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      manager.save(2, state_at(2));
    } catch (const Error& error) {
      ::_exit(error.system_errno() == EBUSY ? 0 : 2);
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  manager.save(3, state_at(3));
  EXPECT_THAT(manager.all_steps(), ElementsAre(1, 3));
}

TEST(CheckpointManager, FoldersThatAreNoReadableStepsAreNamedOnceAndKept) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.max_to_keep = 1});
  manager.save(1, state_at(1));
  fs::create_directory(folder / "step_00000009");
  fs::create_directory(folder / "step_7");
  std::string text = read_bytes(folder / "step_00000001/checkpoint.json");
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 2");
  write_bytes(folder / "step_7/checkpoint.json", text);
  const Warnings warnings;
  EXPECT_THAT(manager.all_steps(), ElementsAre(1));
  EXPECT_THAT(manager.all_steps(), ElementsAre(1));
  EXPECT_THAT(warnings.all(), UnorderedElementsAre(HasSubstr("step_00000009: is not a step"),
                                                   HasSubstr("\"version\": expected 1 at most")));
  save_steps(manager, {2, 3});
  EXPECT_TRUE(fs::exists(folder / "step_7"));
  EXPECT_TRUE(fs::exists(folder / "step_00000009"));
}

TEST(CheckpointManager, AProcessWithoutDescriptorsDoesNotConsiderStepsMissing) {
  const TemporaryFolder folder;
  CheckpointManager(folder.path()).save(7, state_at(7));
  bool has_failed = false;
  for (rlim_t num_files = 0; num_files < 8; ++num_files) {
    const CheckpointManager manager(folder.path());
    std::optional<std::int64_t> latest;
    const FileLimit limit(num_files);
    try {
      latest = manager.latest_step();
    } catch (const Error& error) {
      EXPECT_EQ(error.system_errno(), EMFILE) << error.what();
      has_failed = true;
      continue;
    }
    EXPECT_EQ(latest, 7) << num_files;
  }
  EXPECT_TRUE(has_failed);
}

TEST(CheckpointManager, AProcessWithoutDescriptorsDoesNotConsiderStepsDamaged) {
  const TemporaryFolder folder;
  {
    CheckpointManager writer(folder.path(), {.formats = {{"optimizer", "memmap"}}});
    save_steps(writer, {6, 7});
  }
  constexpr int kMaxFiles = 32;
  int num_failed = 0;
  for (int num_files = 0; num_files < kMaxFiles; ++num_files) {
    CheckpointManager manager(folder.path());
    const auto expect_right_or_error = [&](const std::function<bool()>& is_right) {
      const FileLimit limit(static_cast<rlim_t>(num_files));
      try {
        EXPECT_TRUE(is_right()) << num_files;
      } catch (const Error& error) {
        EXPECT_EQ(error.system_errno(), EMFILE) << error.what();
        ++num_failed;
      }
    };
    expect_right_or_error([&] { return manager.verify(7).ok(); });
    expect_right_or_error([&] { return manager.restore().info.step == 7; });
  }
  EXPECT_GT(num_failed, 0);
  EXPECT_LT(num_failed, kMaxFiles);
}

TEST(CheckpointManager, CopiedStepsWithNumbersOfAnyWidthAreRead) {
  const TemporaryFolder folder;
  CheckpointManager(folder / "a").save(5, state_at(5));
  fs::create_directory(folder / "b");
  fs::copy(folder / "a/step_00000005", folder / "b/step_5", fs::copy_options::recursive);
  CheckpointManager copy(folder / "b");
  EXPECT_TRUE(is_state_of(copy.restore().state, 5));
  copy.save(5, state_at(6));
  EXPECT_EQ(copy.path(5), folder / "b/step_5");
  // If two folders have the same step number, the one that was saved later is used.
  fs::copy(folder / "a/step_00000005", folder / "b/step_00000005", fs::copy_options::recursive);
  const Warnings warnings;
  EXPECT_EQ(copy.path(5), folder / "b/step_5");
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("is a duplicate")));
}

TEST(CheckpointManager, AnInvalidFolderWithAnotherNameOfTheStepIsLeftAlone) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  manager.save(5, state_at(5));
  fs::create_directory(folder / "step_5");
  manager.save(5, state_at(6));
  fs::create_directory(folder / "step_7");
  write_bytes(folder / "step_5/checkpoint.json", "{");
  write_bytes(folder / "step_7/checkpoint.json", "{");
  const Warnings warnings;
  save_steps(manager, {5, 7});
  for (const std::string& warning : warnings.all()) {
    EXPECT_THAT(warning, Not(HasSubstr("replaces the step")));
  }
  EXPECT_TRUE(is_state_of(manager.restore({.step = 5}).state, 5));
  EXPECT_TRUE(is_state_of(manager.restore({.step = 7}).state, 7));
  EXPECT_TRUE(fs::exists(folder / "step_5/checkpoint.json"));
}

TEST(CheckpointManager, OtherRunsAreRestoredByPath) {
  const TemporaryFolder folder;
  CheckpointManager pretraining(folder / "a");
  save_steps(pretraining, {1, 2});
  CheckpointManager manager(folder / "b");
  EXPECT_TRUE(is_state_of(manager.restore({.path = folder / "a"}).state, 2));
  EXPECT_TRUE(is_state_of(manager.restore({.path = folder / "a/step_00000001"}).state, 1));
  EXPECT_THAT(manager.all_steps(), IsEmpty());
  manager.save(1, state_at(1));
  EXPECT_EQ(manager.metadata(1).lineage.size(), 1U);
}

TEST(CheckpointManager, ARunThatDoesNotContinueTheLatestStepWarnsOnce) {
  const TemporaryFolder folder;
  CheckpointManager(folder.path()).save(1, state_at(1));
  CheckpointManager manager(folder.path());
  const Warnings warnings;
  save_steps(manager, {2, 3});
  EXPECT_THAT(warnings.all(), ElementsAre(HasSubstr("does not continue")));
  EXPECT_THAT(manager.status()[0].is_in_current_lineage, false);
}

TEST(CheckpointManager, AnUnchangedEntryWarnsOnce) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  const Warnings warnings;
  TensorDict state = state_at(1);
  manager.save(1, state, {.constant = {"optimizer"}});
  manager.save(2, state, {.constant = {"optimizer"}});
  manager.save(3, state, {.constant = {"optimizer"}});
  EXPECT_THAT(warnings.all(),
              ElementsAre(::testing::AllOf(HasSubstr("\"model\" of step 2"), HasSubstr("step 1"))));
}

TEST(CheckpointManager, ExportOfOneEntryOmitsTheEntryFromTheNames) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run");
  manager.save(1, state_at(1));
  ConvertOptions options;
  options.keys = {"model"};
  options.dtype = DType::bfloat16;
  manager.export_step(1, folder / "model.safetensors", options);
  const TensorDict model = open(folder / "model.safetensors");
  EXPECT_EQ(model.keys(), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(model.at("weight").dtype(), DType::bfloat16);
  manager.export_step(1, folder / "all");
  EXPECT_TRUE(is_state_of(open(folder / "all"), 1));
}

TEST(CheckpointManager, ExportIgnoresDamageOfEntriesThatAreNotSelected) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run");
  manager.save(1, state_at(1));
  write_bytes(manager.path(1) / "epoch.json", "{");
  ConvertOptions options;
  options.keys = {"model.*"};
  manager.export_step(1, folder / "model.safetensors", options);
  EXPECT_EQ(values<float>(open(folder / "model.safetensors").at("weight"))[0], 1);
  EXPECT_EQ(error_of([&] { manager.export_step(1, folder / "all"); }).code(), ErrorCode::corrupt);
}

TEST(CheckpointManager, ExportComparesChecksums) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder / "run");
  manager.save(1, state_at(1));
  damage(manager.path(1) / "model.safetensors");
  EXPECT_EQ(error_of([&] { manager.export_step(1, folder / "model"); }).code(), ErrorCode::corrupt);
  EXPECT_FALSE(std::filesystem::exists(folder / "model"));
  ConvertOptions options;
  options.exclude = {"model"};
  manager.export_step(1, folder / "rest", options);
}

TEST(CheckpointManager, ImportMakesAStepOfAnyFile) {
  const TemporaryFolder folder;
  save(state_at(4), folder / "old.pt");
  const TensorDict old = open(folder / "old.pt");
  save(old["model"], folder / "model.safetensors");
  CheckpointManager manager(folder / "run");
  manager.import_step(folder / "old.pt", 4);
  EXPECT_TRUE(is_state_of(manager.restore().state, 4));
  manager.import_step(folder / "model.safetensors", 5);
  EXPECT_EQ(manager.restore().state.keys(), std::vector<std::string>{"model"});
  manager.import_step(manager.path(4), 6);
  EXPECT_TRUE(is_state_of(manager.restore().state, 4));
}

TEST(CheckpointManager, UnchangedFilesAreLinked) {
  const TemporaryFolder folder;
  CheckpointManager manager(
      folder.path(),
      {.formats = {{"optimizer", "memmap"}, {"*", "safetensors"}}, .share_unchanged = true});
  TensorDict state = state_at(1);
  manager.save(1, state, {.constant = {"model", "optimizer"}});
  state.set("epoch", Value(2));
  manager.save(2, state, {.constant = {"model", "optimizer"}});
  const auto links = [&](const std::string& name) { return fs::hard_link_count(folder / name); };
  EXPECT_EQ(links("step_00000002/model.safetensors"), 2U);
  EXPECT_EQ(links("step_00000002/optimizer/momentum.memmap"), 2U);
  EXPECT_EQ(links("step_00000002/epoch.json"), 1U);
  EXPECT_EQ(fs::status(folder / "step_00000001/optimizer/momentum.memmap").permissions() &
                fs::perms::owner_write,
            fs::perms::none);
  EXPECT_TRUE(manager.verify(2).ok());
  manager.save(3, state_at(3));
  EXPECT_EQ(links("step_00000003/model.safetensors"), 1U);
  manager.remove(1);
  manager.wait();
  EXPECT_TRUE(manager.verify(2).ok());
}

TEST(CheckpointManager, AnEntryMayHaveTheNameOfATemporaryLink) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(),
                            {.formats = {{"x", "pt"}, {"*", "memmap"}}, .share_unchanged = true});
  TensorDict state;
  for (const char* name : {"x.pt.linked", "x", ".linked"}) {
    state.set(name, state_at(1).get("model"));
  }
  const CheckpointSaveOptions constant = {.constant = {"x.pt.linked", "x", ".linked"}};
  for (const std::int64_t step : {1, 2}) manager.save(step, state, constant);
  EXPECT_EQ(fs::hard_link_count(folder / "step_00000002/x.pt"), 2U);
  EXPECT_TRUE(manager.verify(2).ok());
}

/// A state of 1 MiB: frozen weights and an optimizer. States made with different `changing` differ
/// only in the tensor "step" of the optimizer.
TensorDict mostly_frozen_state(float changing) {
  constexpr std::size_t kNumbers = std::size_t{1} << 14;
  const auto numbers = [](float value, std::size_t count) {
    const std::vector<float> values(count, value);
    return Tensor::from(std::span<const float>(values));
  };
  TensorDict optimizer;
  TensorDict frozen;
  for (int i = 0; i < 8; ++i) {
    optimizer.set("momentum" + std::to_string(i), numbers(static_cast<float>(i), kNumbers));
    frozen.set("weight" + std::to_string(i), numbers(static_cast<float>(-i), kNumbers));
  }
  TensorDict state;
  optimizer.set("step", numbers(changing, 3));
  state.set("optimizer", optimizer);
  state.set("frozen", frozen);
  return state;
}

const CheckpointManagerOptions kSharing = {
    .formats = {{"optimizer", "memmap"}, {"*", "safetensors"}}, .share_unchanged = true};
const CheckpointSaveOptions kConstant = {.constant = {"frozen", "optimizer"}};

TEST(CheckpointManager, ASharingSaveWritesOnlyChangedEntries) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), kSharing);
  manager.save(1, mostly_frozen_state(1), kConstant);
  std::atomic<std::size_t> num_bytes = 0;
  {
    const WatchChanges watch([&](const os::Change& change) { num_bytes += change.bytes.size(); });
    manager.save(2, mostly_frozen_state(2), kConstant);
  }
  EXPECT_LT(num_bytes, 32U << 10);  // the state has 1 MiB
  EXPECT_EQ(fs::hard_link_count(folder / "step_00000002/frozen.safetensors"), 2U);
  EXPECT_EQ(fs::hard_link_count(folder / "step_00000002/optimizer/momentum7.memmap"), 2U);
  EXPECT_EQ(fs::hard_link_count(folder / "step_00000002/optimizer/step.memmap"), 1U);
  manager.remove(1);
  manager.wait();
  EXPECT_TRUE(manager.verify(2).ok());
  EXPECT_EQ(values<float>(manager.restore().state.at("optimizer", "step")).front(), 2.0F);
}

TEST(CheckpointManager, AFileThatWasModifiedSinceItsStepIsNotLinked) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), kSharing);
  manager.save(1, mostly_frozen_state(1), kConstant);
  const fs::path leaf = folder / "step_00000001/optimizer/momentum3.memmap";
  const fs::path file = folder / "step_00000001/frozen.safetensors";
  for (const fs::path& path : {leaf, file}) {
    damage_in_place(path);
    fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(1));
  }
  manager.save(2, mostly_frozen_state(2), kConstant);
  EXPECT_EQ(fs::hard_link_count(leaf), 1U);
  EXPECT_EQ(fs::hard_link_count(file), 1U);
  EXPECT_EQ(fs::hard_link_count(folder / "step_00000001/optimizer/momentum4.memmap"), 2U);
  EXPECT_FALSE(manager.verify(1).ok());
  EXPECT_TRUE(manager.verify(2).ok());
}

TEST(CheckpointManager, SettingMetricsDoesNotHideAModificationOfAFile) {
  for (const bool is_modified : {false, true}) {
    const TemporaryFolder folder;
    CheckpointManager manager(folder.path(), kSharing);
    manager.save(1, mostly_frozen_state(1), kConstant);
    const fs::path file = folder / "step_00000001/frozen.safetensors";
    const fs::path document = folder / "step_00000001/checkpoint.json";
    const auto saved = fs::file_time_type::clock::now() - std::chrono::hours(1);
    fs::last_write_time(document, saved);
    if (is_modified) damage_in_place(file);
    fs::last_write_time(file, saved + std::chrono::seconds(is_modified ? 1 : -1));
    manager.set_metrics(1, {{"loss", 0.5}});
    manager.set_metrics(1, {{"loss", 0.25}});
    manager.save(2, mostly_frozen_state(2), kConstant);
    EXPECT_EQ(fs::hard_link_count(file), is_modified ? 1U : 2U);
    EXPECT_TRUE(manager.verify(2).ok());
  }
}

TEST(CheckpointManager, AReplacedFileIsNotLinked) {
  const auto change = [](const fs::path& path, const std::function<void(const fs::path&)>& how) {
    const TemporaryFolder folder;
    CheckpointManager manager(folder.path(), kSharing);
    manager.save(1, mostly_frozen_state(1), kConstant);
    how(folder / "step_00000001" / path);
    manager.save(2, mostly_frozen_state(2), kConstant);
    EXPECT_EQ(fs::hard_link_count(folder / "step_00000002" / path), 1U) << path;
    EXPECT_TRUE(manager.verify(2).ok()) << path;
  };
  for (const char* path : {"optimizer/momentum3.memmap", "frozen.safetensors"}) {
    change(path, [](const fs::path& file) { fs::remove(file); });
    change(path, [](const fs::path& file) { fs::resize_file(file, 100); });
    change(path, [](const fs::path& file) {
      fs::rename(file, file.string() + ".moved");
      fs::create_symlink(file.string() + ".moved", file);
    });
    change(path, [](const fs::path& file) {
      fs::remove(file);
      fs::create_directory(file);
    });
  }
  change("optimizer/momentum3.memmap",
         [](const fs::path& file) { damage(file.parent_path() / "%checksums"); });
  change("optimizer/momentum3.memmap",
         [](const fs::path& file) { fs::remove(file.parent_path() / "%checksums"); });
  change("optimizer/momentum3.memmap",
         [](const fs::path& file) { fs::remove_all(file.parent_path()); });
}

TEST(CheckpointManager, RemovingAStepDuringASharingSaveIsHarmless) {
  std::size_t num_changes = 0;
  for (std::size_t at = 0; at <= num_changes; ++at) {
    const TemporaryFolder folder;
    CheckpointManagerOptions options = kSharing;
    options.durable = false;
    CheckpointManager manager(folder.path(), options);
    manager.save(1, mostly_frozen_state(1), kConstant);
    std::atomic<std::size_t> count = 0;
    {
      const WatchChanges watch([&](const os::Change&) {
        if (count++ == at) fs::remove_all(folder / "step_00000001");
      });
      manager.save(2, mostly_frozen_state(2), kConstant);
    }
    num_changes = std::max(num_changes, count.load());
    EXPECT_TRUE(manager.verify(2).ok()) << at;
  }
  EXPECT_GT(num_changes, 20U);
}

TEST(CheckpointManager, AliasesStayOneFileInASharingSave) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), kSharing);
  const auto state_of = [](float changing) {
    TensorDict state = mostly_frozen_state(changing);
    TensorDict optimizer = std::get<TensorDict>(state.get("optimizer"));
    optimizer.set("tied", optimizer.at("momentum0"));
    return state;
  };
  for (const int step : {1, 2}) manager.save(step, state_of(static_cast<float>(step)), kConstant);
  const fs::path optimizer = folder / "step_00000002/optimizer";
  EXPECT_TRUE(fs::equivalent(optimizer / "momentum0.memmap", optimizer / "tied.memmap"));
  EXPECT_EQ(fs::hard_link_count(optimizer / "tied.memmap"), 4U);
  EXPECT_TRUE(manager.verify(2).ok());
}

TEST(CheckpointManager, HardLinksDoNotChangeSharedStorage) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.formats = {{"*", "memmap"}}, .share_unchanged = true});
  const auto zeros = [] {
    const std::vector<float> values(8);
    return Tensor::from(std::span<const float>(values));
  };
  const auto state_of = [](Tensor a, Tensor b) {
    TensorDict model;
    model.set("a", std::move(a));
    model.set("b", std::move(b));
    TensorDict state;
    state.set("model", model);
    return state;
  };
  const Tensor one = zeros();
  manager.save(1, state_of(one, one));
  manager.save(2, state_of(zeros(), zeros()), {.constant = {"model"}});
  manager.save(3, state_of(one, one), {.constant = {"model"}});
  const auto is_tied = [&](std::int64_t step) {
    const fs::path model = manager.path(step) / "model";
    return fs::equivalent(model / "a.memmap", model / "b.memmap");
  };
  EXPECT_TRUE(is_tied(1));
  EXPECT_FALSE(is_tied(2));
  EXPECT_TRUE(is_tied(3));
  for (const std::int64_t step : {1, 2, 3}) EXPECT_TRUE(manager.verify(step).ok());
}

TEST(CheckpointManager, ShouldSaveFollowsStepsAndSecondsOfTheOptions) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.every_steps = 10});
  EXPECT_FALSE(manager.should_save(0));
  EXPECT_FALSE(manager.should_save(9));
  EXPECT_TRUE(manager.should_save(12));  // a loop may skip step 10
  manager.save(12, state_at(12));
  EXPECT_FALSE(manager.should_save(19));
  EXPECT_TRUE(manager.should_save(20));
  manager.begin_save(20);
  EXPECT_FALSE(manager.should_save(20));
  EXPECT_THROW(manager.save(-1, state_at(1)), Error);
  EXPECT_THROW(manager.begin_save(-1), Error);
  EXPECT_FALSE(manager.should_save(21));
  EXPECT_TRUE(CheckpointManager(folder.path()).should_save(0));
  CheckpointManager timed(folder.path(), {.every_seconds = 1e-9});
  EXPECT_TRUE(timed.should_save(0));
  CheckpointManager patient(folder.path(), {.every_seconds = 1e9});
  EXPECT_FALSE(patient.should_save(1000));
}

TEST(CheckpointManager, ReadersContinueDuringASave) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path(), {.every_steps = 1});
  manager.save(1, state_at(1));
  bool was_asked = false;
  {
    const WatchChanges watch([&](const os::Change&) {
      if (std::exchange(was_asked, true)) return;
      EXPECT_FALSE(manager.should_save(2));
      EXPECT_EQ(manager.status().size(), 1U);
      EXPECT_EQ(manager.latest_step(), 1);
      EXPECT_TRUE(manager.verify(1).ok());
    });
    manager.save(2, state_at(2));
  }
  EXPECT_TRUE(was_asked);
}

TEST(CheckpointManager, EstimateCountsSharedBytesOnce) {
  const TemporaryFolder folder;
  const CheckpointManager manager(folder / "none/yet");
  TensorDict state = state_at(1);
  TensorDict model = state["model"];
  model.set("tied", model.at("weight"));
  const CheckpointEstimate estimate = manager.estimate(state);
  ASSERT_EQ(estimate.entries.size(), 3U);
  EXPECT_EQ(estimate.entries[0].second, 24U);
  EXPECT_EQ(estimate.num_bytes, 24U + 12U + 2U);
  EXPECT_FALSE(fs::exists(folder / "none"));
}

TEST(CheckpointManager, AMissingStepIsAKeyErrorThatListsTheExistingSteps) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  EXPECT_EQ(error_of([&] { manager.restore(); }).code(), ErrorCode::file_not_found);
  save_steps(manager, {1, 2});
  const Error error = error_of([&] { manager.restore({.step = 3}); });
  EXPECT_EQ(error.code(), ErrorCode::key_not_found);
  EXPECT_THAT(error.what(), HasSubstr("expected one of the steps 1, 2"));
  EXPECT_EQ(error_of([&] { manager.save(-1, state_at(1)); }).code(), ErrorCode::invalid_argument);
}

TEST(CheckpointManager, RemovingFromAnAbsentDirectoryDoesNotCreateIt) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  CheckpointManager manager(run, {.max_to_keep = 1});
  EXPECT_THAT(manager.prune(), IsEmpty());
  EXPECT_EQ(error_of([&] { manager.remove(1); }).code(), ErrorCode::key_not_found);
  EXPECT_FALSE(fs::exists(run));
}

TEST(CheckpointManager, LeftoversOfACrashedRunAreRemovedByTheNextOne) {
  const TemporaryFolder folder;
  {
    CheckpointManager(folder.path()).save(1, state_at(1));
  }
  fs::create_directory(folder / ".step_00000437.tenfold-0");
  write_bytes(folder / ".step_00000437.tenfold-0/model.safetensors", "half");
  fs::create_directory(folder / ".trash-3");
  write_bytes(folder / ".trash-3/epoch.json", "1\n");
  CheckpointManager manager(folder.path());
  manager.restore();
  manager.save(2, state_at(2));
  manager.close();
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("step_00000001", "step_00000002"));
}

}  // namespace
}  // namespace tenfold::test
