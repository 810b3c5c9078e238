// Crash tests of checkpoints. The latest complete step must be restored after SIGKILL or an error
// at any change of the file system, and after a power failure between any two changes.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>
#include <tenfold/error.hpp>

#include "checkpoint/sample_states.hpp"
#include "support/crash_harness.hpp"

namespace tenfold::test {
namespace {

namespace fs = std::filesystem;

/// Saves steps 1 and 2. A third save prunes step 1.
void save_old(const fs::path& path) {
  CheckpointManager manager(path, {.max_to_keep = 2, .durable = false, .num_threads = 1});
  manager.save(1, state_at(1));
  manager.save(2, state_at(2));
  manager.close();
}

void save_new(const fs::path& path, bool durable) {
  CheckpointManager manager(path, {.max_to_keep = 2, .durable = durable, .num_threads = 1});
  if (manager.latest_step()) manager.restore();
  manager.save(3, state_at(3), {.force = true});
  manager.close();
}

/// Returns the version that a restart restores.
Found which(const fs::path& path) {
  CheckpointManager manager(path);
  if (!manager.latest_step()) return Found::absent;
  for (const std::int64_t step : manager.all_steps()) {
    if (!manager.verify(step).ok()) return Found::neither;
  }
  const RestoredCheckpoint restored = manager.find();
  if (!is_state_of(restored.state, restored.info.step)) return Found::neither;
  return restored.info.step == 3   ? Found::new_version
         : restored.info.step == 2 ? Found::old_version
                                   : Found::neither;
}

std::string litter_in(const fs::path& path) {
  std::string names;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step_")) names += name + " ";
  }
  return names;
}

CrashCase crash_case() {
  CrashCase crash;
  crash.name = "CheckpointManager";
  crash.file_name = "run";
  crash.make_old = save_old;
  crash.make_new = save_new;
  crash.which = which;
  crash.litter_in = litter_in;
  return crash;
}

/// Saves steps that share the files of their tensors, because the state does not change.
void save_shared(const fs::path& path, bool durable, const std::vector<std::int64_t>& steps) {
  CheckpointManager manager(path, {.max_to_keep = 2,
                                   .formats = {{"optimizer", "memmap"}, {"*", "safetensors"}},
                                   .share_unchanged = true,
                                   .durable = durable,
                                   .num_threads = 1});
  if (manager.latest_step()) manager.restore();
  for (const std::int64_t step : steps) {
    manager.save(step, state_at(1), {.force = true, .constant = {"model", "optimizer"}});
  }
  manager.close();
}

Found which_shared(const fs::path& path) {
  CheckpointManager manager(path);
  if (!manager.latest_step()) return Found::absent;
  for (const std::int64_t step : manager.all_steps()) {
    if (!manager.verify(step).ok()) return Found::neither;
  }
  const RestoredCheckpoint restored = manager.find();
  if (!is_state_of(restored.state, 1)) return Found::neither;
  if (restored.info.step == 3) return Found::new_version;
  return restored.info.step == 2 ? Found::old_version : Found::neither;
}

CrashCase sharing_case() {
  CrashCase crash = crash_case();
  crash.name = "SharingCheckpointManager";
  crash.make_old = [](const fs::path& path) { save_shared(path, false, {1, 2}); };
  crash.make_new = [](const fs::path& path, bool durable) { save_shared(path, durable, {3}); };
  crash.which = which_shared;
  return crash;
}

TEST(CheckpointCrash, ACrashAtEveryChangeOfASharingSaveLeavesACompleteStep) {
  expect_survives_kill_at_every_change(sharing_case(), true, true);
}

TEST(CheckpointCrash, AFailureOfEveryChangeOfASharingSaveLeavesACompleteStep) {
  expect_survives_failure_of_every_change(sharing_case(), true, true, EIO);
}

TEST(CheckpointCrash, APowerFailureAtEveryMomentOfASharingSaveLeavesACompleteStep) {
  expect_survives_power_loss(sharing_case(), true, 4, 20262);
}

TEST(CheckpointCrash, ACrashAtEveryChangeLeavesACompleteStep) {
  expect_survives_kill_at_every_change(crash_case(), false, true);
  expect_survives_kill_at_every_change(crash_case(), true, true);
}

TEST(CheckpointCrash, ACrashOfTheFirstSaveLeavesNothingOrTheSave) {
  expect_survives_kill_at_every_change(crash_case(), false, false);
}

TEST(CheckpointCrash, AFullDiskAtEveryChangeLeavesACompleteStep) {
  expect_survives_failure_of_every_change(crash_case(), true, true, ENOSPC);
}

TEST(CheckpointCrash, APowerFailureAtEveryMomentLeavesACompleteStep) {
  expect_survives_power_loss(crash_case(), true, 4, 20261);
}

}  // namespace
}  // namespace tenfold::test
