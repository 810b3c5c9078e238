#include "support/crash_harness.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <random>
#include <set>
#include <vector>

#include <tenfold/error.hpp>

#include "os/fault.hpp"
#include "support/change_log.hpp"
#include "support/model_disk.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::test {
namespace {

namespace fs = std::filesystem;

/// Memory where there is such a file system: the kernel keeps our promises about processes there
/// too, and what is lost with the power is the model's business.
fs::path fast_root() {
  const fs::path memory = "/dev/shm";
  return ::access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
}

/// A folder that holds the old version, or nothing, under the case's file name.
class Scene {
 public:
  Scene(const CrashCase& crash, bool with_old) : parent_(fast_root()) {
    if (with_old) crash.make_old(path(crash));
  }
  const fs::path& parent() const { return parent_.path(); }
  fs::path path(const CrashCase& crash) const { return parent_ / crash.file_name; }

 private:
  TemporaryFolder parent_;
};

std::set<std::string> entries_of(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

std::size_t count_descriptors() { return entries_of("/proc/self/fd").size(); }

std::string text_of(Found found) {
  switch (found) {
    case Found::absent:
      return "absent";
    case Found::old_version:
      return "the old version";
    case Found::new_version:
      return "the new version";
    case Found::neither:
      return "neither version";
  }
  return "?";
}

/// The old version (absent if there was none) or the new one.
::testing::AssertionResult is_whole(Found found, bool with_old) {
  const Found before = with_old ? Found::old_version : Found::absent;
  if (found == before || found == Found::new_version) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "found " << text_of(found);
}

void expect_next_save_cleans_up(const CrashCase& crash, const fs::path& parent) {
  const fs::path path = parent / crash.file_name;
  crash.make_new(path, false);
  EXPECT_EQ(text_of(crash.which(path)), text_of(Found::new_version)) << "after one more save";
  EXPECT_EQ(entries_of(parent), std::set<std::string>{crash.file_name}) << "after one more save";
}

/// Ends the process before the change of that number, or half-way through it if it is a write.
class Killer : public os::ChangeObserver {
 public:
  static constexpr int kKilled = 77;

  Killer(std::size_t at, bool half_way) : at_(at), half_way_(half_way) {}
  void before(const os::Change& change) override {
    if (next_.fetch_add(1) != at_) return;
    if (half_way_ && change.kind == os::Change::Kind::write) {
      const auto half = change.bytes.first(change.bytes.size() / 2);
      [[maybe_unused]] const auto written = ::pwrite(change.descriptor, half.data(), half.size(),
                                                     static_cast<off_t>(change.offset_bytes));
    }
    ::_exit(kKilled);
  }
  void after(const os::Change&, std::uint64_t) override {}

 private:
  std::size_t at_;
  bool half_way_;
  std::atomic<std::size_t> next_{0};
};

/// True if the child was killed; false if its save came to the end.
bool save_in_child_killed_at(const CrashCase& crash, const fs::path& path, bool durable,
                             std::size_t at, bool half_way) {
  const pid_t child = ::fork();
  if (child == 0) {
    Killer killer(at, half_way);
    os::set_change_observer(&killer);
    try {
      crash.make_new(path, durable);
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  EXPECT_TRUE(code == 0 || code == Killer::kKilled) << "the child ended with status " << status;
  return code == Killer::kKilled;
}

/// Throws at the change of that number, once.
class Refuser : public os::ChangeObserver {
 public:
  Refuser(std::size_t at, int system_errno) : at_(at), system_errno_(system_errno) {
    previous_ = os::set_change_observer(this);
  }
  ~Refuser() override { os::set_change_observer(previous_); }
  void before(const os::Change&) override {
    if (next_.fetch_add(1) != at_) return;
    refused_ = true;
    throw Error::io(system_errno_, "injected", "injected: the system refuses");
  }
  void after(const os::Change&, std::uint64_t) override {}
  bool refused() const { return refused_; }

 private:
  std::size_t at_;
  int system_errno_;
  std::atomic<bool> refused_{false};
  std::atomic<std::size_t> next_{0};
  os::ChangeObserver* previous_ = nullptr;
};

ModelDisk::Survival survival_of_trial(int trial, std::mt19937_64& random) {
  // First the corners, where orders that are assumed but not asked for show, then anything.
  static constexpr std::array<ModelDisk::Survival, 4> kCorners = {
      {{0, 0}, {0, 1}, {1, 0}, {0.5, 1}}};
  if (trial < static_cast<int>(kCorners.size())) return kCorners[static_cast<std::size_t>(trial)];
  std::uniform_real_distribution<double> any(0, 1);
  return {any(random), any(random)};
}

}  // namespace

void expect_survives_kill_at_every_change(const CrashCase& crash, bool durable, bool with_old) {
  for (const bool half_way : {false, true}) {
    bool killed = true;
    for (std::size_t at = 0; killed; ++at) {
      SCOPED_TRACE("killed at change " + std::to_string(at) + (half_way ? ", half-way" : ""));
      const Scene scene(crash, with_old);
      const fs::path path = scene.path(crash);
      killed = save_in_child_killed_at(crash, path, durable, at, half_way);
      const Found found = crash.which(path);
      EXPECT_TRUE(is_whole(found, with_old));
      if (!killed) {
        EXPECT_GT(at, 1U) << "a save that makes no changes proves nothing";
        EXPECT_EQ(text_of(found), text_of(Found::new_version));
      }
      expect_next_save_cleans_up(crash, scene.parent());
      if (::testing::Test::HasFailure()) return;
    }
  }
}

void expect_survives_failure_of_every_change(const CrashCase& crash, bool durable, bool with_old,
                                             int system_errno) {
  bool refused = true;
  for (std::size_t at = 0; refused; ++at) {
    SCOPED_TRACE("change " + std::to_string(at) + " refused");
    const Scene scene(crash, with_old);
    const fs::path path = scene.path(crash);
    const std::size_t descriptors_before = count_descriptors();
    {
      Refuser refuser(at, system_errno);
      bool thrown = false;
      try {
        crash.make_new(path, durable);
      } catch (const Error& error) {
        thrown = true;
        EXPECT_EQ(error.system_errno(), system_errno) << error.what();
      }
      refused = refuser.refused();
      EXPECT_EQ(thrown, refused);
    }
    EXPECT_EQ(count_descriptors(), descriptors_before);
    const Found found = crash.which(path);
    EXPECT_TRUE(is_whole(found, with_old));
    const std::set<std::string> entries = entries_of(scene.parent());
    EXPECT_TRUE(entries.empty() || entries == std::set<std::string>{crash.file_name});
    if (!refused) {
      EXPECT_EQ(text_of(found), text_of(Found::new_version));
    }
    expect_next_save_cleans_up(crash, scene.parent());
    if (::testing::Test::HasFailure()) return;
  }
}

void expect_survives_power_loss(const CrashCase& crash, bool with_old, int num_trials,
                                std::uint64_t seed) {
  const Scene scene(crash, with_old);
  ModelDisk disk(scene.parent());
  std::vector<LoggedChange> changes;
  {
    ChangeLog log;
    crash.make_new(scene.path(crash), true);
    changes = log.changes();
  }
  ASSERT_GT(changes.size(), 1U);

  std::mt19937_64 random(seed);
  const TemporaryFolder trials(fast_root());
  for (std::size_t done = 0; done <= changes.size(); ++done) {
    if (done > 0) disk.apply(changes[done - 1], done - 1);
    for (int trial = 0; trial < num_trials; ++trial) {
      SCOPED_TRACE("power lost after " + std::to_string(done) + " of " +
                   std::to_string(changes.size()) + " changes, trial " + std::to_string(trial));
      const fs::path parent = trials / "disk";
      disk.lose_power(survival_of_trial(trial, random), random, parent);
      const Found found = crash.which(parent / crash.file_name);
      EXPECT_TRUE(is_whole(found, with_old));
      if (done == changes.size()) {
        EXPECT_EQ(text_of(found), text_of(Found::new_version)) << "though the save had returned";
      }
      if (trial % 8 == 0) expect_next_save_cleans_up(crash, parent);
      if (::testing::Test::HasFailure()) return;
      fs::remove_all(parent);
    }
  }
}

}  // namespace tenfold::test
