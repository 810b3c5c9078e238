#include "support/crash_harness.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include <tenfold/error.hpp>

#include "base/sanitizers.hpp"
#include "os/fs/change_observer.hpp"
#include "os/fs/file.hpp"
#include "os/fs/lease.hpp"
#include "os/process.hpp"
#include "support/change_log.hpp"
#include "support/model_disk.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"
#include "support/watch_changes.hpp"

namespace tenfold::test {
namespace {

namespace fs = std::filesystem;

/// Returns a folder in memory, if there is one. Memory suffices for these tests: a crash of a
/// process has the same effects there as on a disk, and a model simulates power failures. The
/// environment variable TENFOLD_TEST_FOLDER selects another folder.
fs::path fast_root() {
  if (const char* folder = std::getenv("TENFOLD_TEST_FOLDER")) return folder;
  const fs::path memory = "/dev/shm";
  return ::access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
}

/// A folder with the old version, or nothing, under the case's file name.
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

/// Accepts the old version (nothing if there was none) or the new one.
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
  if (crash.litter_in) {
    EXPECT_EQ(crash.litter_in(path), "") << "after one more save";
  }
}

/// Adds to a counter of the running test, which --gtest_output=json records.
void add_to(const std::string& name, std::size_t number) {
  static std::map<std::pair<const ::testing::TestInfo*, std::string>, std::size_t> counts;
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::size_t& count = counts[{test, name}];
  count += number;
  ::testing::Test::RecordProperty(name, std::to_string(count));
}

constexpr int kKilled = 77;

/// Ends the process without any cleanup, as SIGKILL does. With `half_way`, first writes the first
/// half of the bytes if the change is a write.
[[noreturn]] void kill_here(const os::Change& change, bool half_way) {
  if (half_way && change.kind == os::Change::Kind::write) {
    const auto half = change.bytes.first(change.bytes.size() / 2);
    [[maybe_unused]] const auto written = ::pwrite(change.descriptor, half.data(), half.size(),
                                                   static_cast<off_t>(change.offset_bytes));
  }
  ::_exit(kKilled);
}

/// Returns true if the child was ended at change `at`; false if its save made fewer changes.
bool save_in_child_killed_at(const CrashCase& crash, const fs::path& path, bool durable,
                             std::size_t at, bool half_way) {
  const pid_t child = ::fork();
  if (child == 0) {
    const AtChange killer(at, [&](const os::Change& change) { kill_here(change, half_way); });
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
  EXPECT_TRUE(code == 0 || code == kKilled) << "the child ended with status " << status;
  return code == kKilled;
}

/// Simulates a reboot: existing leases have another boot ID, and their timeout is over.
class AfterABoot {
 public:
  AfterABoot()
      : boot_(os::set_boot_id(kNextBoot)),
        timeout_(os::set_lease_timeout(std::chrono::seconds(0))) {}
  ~AfterABoot() {
    os::set_boot_id(boot_);
    os::set_lease_timeout(timeout_);
  }
  AfterABoot(const AfterABoot&) = delete;
  AfterABoot& operator=(const AfterABoot&) = delete;

 private:
  std::optional<os::BootId> boot_;
  std::chrono::seconds timeout_;
};

// The crash tests check files, not memory accesses. AddressSanitizer makes each run three times as
// slow, so most tests there interrupt only every seventh change. Other builds interrupt each one.
std::size_t crash_step = TENFOLD_ASAN ? 7 : 1;

ModelDisk::Survival survival_of_trial(int trial, std::mt19937_64& random) {
  // The first trials are corner cases, which detect wrong assumptions about the order of writes.
  static constexpr std::array<ModelDisk::Survival, 4> kCorners = {
      {{0, 0}, {0, 1}, {1, 0}, {0.5, 1}}};
  if (trial < static_cast<int>(kCorners.size())) return kCorners[static_cast<std::size_t>(trial)];
  std::uniform_real_distribution<double> any(0, 1);
  return {any(random), any(random)};
}

}  // namespace

void crash_at_every_change() { crash_step = 1; }

void expect_survives_kill_at_every_change(const CrashCase& crash, bool durable, bool with_old) {
  for (const bool half_way : {false, true}) {
    bool killed = true;
    for (std::size_t at = 0; killed; at += crash_step) {
      SCOPED_TRACE("killed at change " + std::to_string(at) + (half_way ? ", half-way" : ""));
      const Scene scene(crash, with_old);
      const fs::path path = scene.path(crash);
      killed = save_in_child_killed_at(crash, path, durable, at, half_way);
      if (killed) add_to("kills", 1);
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

namespace {

enum class Refused : std::uint8_t { changes, closes };

void expect_survives_refusals(const CrashCase& crash, bool durable, bool with_old, int system_errno,
                              Refused what) {
  bool refused = true;
  for (std::size_t at = 0; refused; ++at) {
    SCOPED_TRACE((what == Refused::changes ? "change " : "close ") + std::to_string(at) +
                 " refused");
    const Scene scene(crash, with_old);
    const fs::path path = scene.path(crash);
    const std::size_t descriptors_before = count_descriptors();
    bool thrown = false;
    refused = false;
    const Warnings warnings;
    {
      std::size_t num_closes = 0;
      const FailCloses closes([&] {
        const bool fails = what == Refused::closes && num_closes++ == at;
        refused = refused || fails;
        return fails ? system_errno : 0;
      });
      const AtChange changes(at, [&](const os::Change&) {
        if (what != Refused::changes) return;
        refused = true;
        throw Error::io(system_errno, "injected", "the system refuses");
      });
      try {
        crash.make_new(path, durable);
      } catch (const Error& error) {
        thrown = true;
        EXPECT_EQ(error.system_errno(), system_errno) << error.what();
      }
      EXPECT_TRUE(refused || !thrown);
    }
    EXPECT_EQ(count_descriptors(), descriptors_before);
    if (refused) add_to("failed_calls", 1);
    const Found found = crash.which(path);
    EXPECT_TRUE(is_whole(found, with_old));
    if (!thrown) {
      EXPECT_EQ(text_of(found), text_of(Found::new_version));
    }
    std::set<std::string> entries = entries_of(scene.parent());
    // A failed save may leave its lease, which is dead: the next save removes it.
    std::erase_if(entries, [](const std::string& name) { return name.ends_with(".lease"); });
    EXPECT_TRUE(found == Found::new_version || entries.empty() ||
                entries == std::set<std::string>{crash.file_name});
    if (!refused) {
      EXPECT_GT(at, 0U) << "a save in which nothing can be refused proves nothing";
    }
    expect_next_save_cleans_up(crash, scene.parent());
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace

void expect_survives_failure_of_every_change(const CrashCase& crash, bool durable, bool with_old,
                                             int system_errno) {
  expect_survives_refusals(crash, durable, with_old, system_errno, Refused::changes);
}

void expect_survives_failure_of_every_close(const CrashCase& crash, bool durable, bool with_old) {
  expect_survives_refusals(crash, durable, with_old, EIO, Refused::closes);
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
    if (done % crash_step != 0 && done != changes.size()) continue;
    for (int trial = 0; trial < num_trials; ++trial) {
      SCOPED_TRACE("power lost after " + std::to_string(done) + " of " +
                   std::to_string(changes.size()) + " changes, trial " + std::to_string(trial));
      const fs::path parent = trials / "disk";
      disk.lose_power(survival_of_trial(trial, random), random, parent);
      add_to("power_failures", 1);
      const Found found = crash.which(parent / crash.file_name);
      EXPECT_TRUE(is_whole(found, with_old));
      if (done == changes.size()) {
        EXPECT_EQ(text_of(found), text_of(Found::new_version)) << "though the save had returned";
      }
      if (trial % 8 == 0) {
        const AfterABoot after;
        expect_next_save_cleans_up(crash, parent);
      }
      if (::testing::Test::HasFailure()) return;
      fs::remove_all(parent);
    }
  }
}

namespace {

/// The result of a process that saves.
enum class Ended : std::uint8_t { saved, refused, crashed };

Ended ended(int status) {
  if (!WIFEXITED(status)) return Ended::crashed;
  return WEXITSTATUS(status) == 0   ? Ended::saved
         : WEXITSTATUS(status) == 1 ? Ended::refused
                                    : Ended::crashed;
}

/// A child that saves, and stops before the change with a given number until it is resumed.
class StoppingWriter {
 public:
  static constexpr std::size_t kNever = ~std::size_t{0};

  StoppingWriter(std::size_t at, const std::function<void()>& save) {
    std::array<int, 2> stopped{};
    std::array<int, 2> go_on{};
    if (::pipe(stopped.data()) != 0 || ::pipe(go_on.data()) != 0) std::abort();
    child_ = ::fork();
    if (child_ == 0) {
      ::close(stopped[0]);
      ::close(go_on[1]);
      char byte = 0;
      try {
        const AtChange interrupter(at, [&](const os::Change&) {
          if (::write(stopped[1], "s", 1) != 1 || ::read(go_on[0], &byte, 1) != 1) ::_exit(3);
        });
        save();
      } catch (const Error&) {
        ::_exit(1);
      } catch (...) {
        ::_exit(2);
      }
      ::_exit(0);
    }
    ::close(stopped[1]);
    ::close(go_on[0]);
    char byte = 0;
    has_stopped_ = ::read(stopped[0], &byte, 1) == 1;  // read() returns 0 if the child has ended
    ::close(stopped[0]);
    go_on_ = go_on[1];
  }
  StoppingWriter(const StoppingWriter&) = delete;
  StoppingWriter& operator=(const StoppingWriter&) = delete;

  bool has_stopped() const { return has_stopped_; }
  Ended finish() {
    if (has_stopped_) {
      EXPECT_EQ(::write(go_on_, "g", 1), 1);
    }
    ::close(go_on_);
    int status = 0;
    ::waitpid(child_, &status, 0);
    return ended(status);
  }

 private:
  pid_t child_ = -1;
  int go_on_ = -1;
  bool has_stopped_ = false;
};

/// The first writer saves the old version, the second the new one.
void expect_two_writers_agree(const CrashCase& crash, const fs::path& parent, Ended first,
                              Ended second) {
  const fs::path path = parent / crash.file_name;
  EXPECT_NE(first, Ended::crashed);
  EXPECT_NE(second, Ended::crashed);
  EXPECT_TRUE(first == Ended::saved || second == Ended::saved) << "neither has saved";
  const Found found = crash.which(path);
  EXPECT_TRUE((found == Found::old_version && first == Ended::saved) ||
              (found == Found::new_version && second == Ended::saved))
      << "found " << text_of(found);
  expect_next_save_cleans_up(crash, parent);
}

}  // namespace

void expect_survives_second_writer(const CrashCase& crash, bool with_old, bool all_interleavings) {
  bool first_stopped = true;
  for (std::size_t i = 0; first_stopped; i += crash_step) {
    bool second_stopped = true;
    for (std::size_t j = all_interleavings ? 0 : StoppingWriter::kNever;
         second_stopped && first_stopped; j += crash_step) {
      SCOPED_TRACE("the first writer stopped at change " + std::to_string(i) +
                   (all_interleavings ? ", the second at " + std::to_string(j) : ""));
      const Scene scene(crash, with_old);
      const fs::path path = scene.path(crash);
      StoppingWriter first(i, [&] { crash.make_old(path); });
      StoppingWriter second(j, [&] { crash.make_new(path, false); });
      first_stopped = first.has_stopped();
      second_stopped = second.has_stopped();
      const Ended first_ended = first.finish();
      const Ended second_ended = second.finish();
      expect_two_writers_agree(crash, scene.parent(), first_ended, second_ended);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

void expect_survives_fork_at_every_change(const CrashCase& crash, bool with_old) {
  bool forked = true;
  for (std::size_t at = 0; forked; at += crash_step) {
    SCOPED_TRACE("forked before change " + std::to_string(at));
    const Scene scene(crash, with_old);
    const fs::path path = scene.path(crash);
    pid_t child = -1;
    {
      const AtChange interrupter(at, [&](const os::Change&) {
        child = ::fork();
        if (child == 0) {
          for (;;) ::pause();
        }
      });
      EXPECT_NO_THROW(crash.make_new(path, false));
      forked = interrupter.was_reached();
    }
    EXPECT_EQ(text_of(crash.which(path)), text_of(Found::new_version));
    if (crash.write_through) {
      EXPECT_NO_THROW(crash.write_through(path));
      EXPECT_NO_THROW(expect_next_save_cleans_up(crash, scene.parent()));
    }
    if (child > 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    if (::testing::Test::HasFailure()) return;
  }
}

void expect_never_replaces_what_is_written_through(const CrashCase& crash) {
  std::size_t num_refused = 0;
  bool opened = true;
  for (std::size_t at = 0; opened; ++at) {
    SCOPED_TRACE("opened \"r+\" before change " + std::to_string(at));
    const Scene scene(crash, true);
    const fs::path path = scene.path(crash);
    std::shared_ptr<void> handle;
    std::optional<os::FileInfo> written_through;
    const AtChange interrupter(at, [&](const os::Change&) {
      try {
        handle = crash.write_through(path);
        written_through = os::file_info(path);
      } catch (const Error& error) {
        // If the file system cannot exchange names, the path is missing for a moment.
        EXPECT_TRUE(error.system_errno() == EBUSY || error.code() == ErrorCode::file_not_found)
            << error.what();
        ++num_refused;
      }
    });
    bool saved = true;
    try {
      crash.make_new(path, false);
    } catch (const Error& error) {
      saved = false;
      EXPECT_EQ(error.system_errno(), EBUSY) << error.what();
    }
    opened = interrupter.was_reached();
    if (written_through) {
      EXPECT_TRUE(os::file_info(path).same_file(*written_through));
      EXPECT_EQ(text_of(crash.which(path)),
                text_of(saved ? Found::new_version : Found::old_version));
    }
    handle.reset();
    expect_next_save_cleans_up(crash, scene.parent());
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(num_refused, 0U) << "every open succeeded, so the save never held a lock";
}

void expect_keeps_foreign_files(const CrashCase& crash) {
  const std::string foreign = "a file of somebody else";
  bool arrived = true;
  for (std::size_t at = 0; arrived; at += crash_step) {
    SCOPED_TRACE("a file arrived before change " + std::to_string(at));
    const Scene scene(crash, true);
    const fs::path path = scene.path(crash);
    const Warnings warnings;
    bool written = false;
    const AtChange interrupter(at, [&](const os::Change&) {
      std::ofstream file(path / "foreign.txt");
      written = file.is_open();  // false while the folder is missing for a moment
      file << foreign;
    });
    EXPECT_NO_THROW(crash.make_new(path, false));
    EXPECT_EQ(text_of(crash.which(path)), text_of(Found::new_version));
    arrived = interrupter.was_reached();
    std::size_t num_found = 0;
    for (const auto& entry : fs::recursive_directory_iterator(scene.parent())) {
      if (entry.path().filename() != "foreign.txt") continue;
      std::ifstream file(entry.path());
      EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), foreign);
      // A folder whose name starts with "." would be removed by the next save.
      EXPECT_FALSE(entry.path().lexically_relative(scene.parent()).string().starts_with("."));
      ++num_found;
    }
    EXPECT_EQ(num_found, written ? 1U : 0U);
    if (::testing::Test::HasFailure()) return;
  }
}

namespace {

/// Returns the files below `folder` whose mode has any permission for the group or others. Ignores
/// the content of private folders.
std::string readable_by_others(const fs::path& folder) {
  std::string names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_symlink()) continue;
    const os::FileInfo info = os::file_info(entry.path());
    constexpr std::uint32_t kOthers = 077;
    if ((info.mode & kOthers) == 0) continue;
    names += info.is_directory ? readable_by_others(entry.path()) : entry.path().string() + " ";
  }
  return names;
}

/// Makes the path private: by its own mode if a save replaces all of it, otherwise by the modes of
/// the files in the folder.
void make_private(const CrashCase& crash, const fs::path& path) {
  if (!fs::is_directory(path) || !crash.litter_in) {
    return fs::permissions(path, fs::perms::group_all | fs::perms::others_all,
                           fs::perm_options::remove);
  }
  for (const auto& entry : fs::directory_iterator(path)) {
    fs::permissions(entry.path(), fs::perms::owner_read | fs::perms::owner_write);
  }
}

}  // namespace

void expect_stays_private(const CrashCase& crash) {
  bool looked = true;
  for (std::size_t at = 0; looked; at += crash_step) {
    SCOPED_TRACE("before change " + std::to_string(at));
    const Scene scene(crash, true);
    const fs::path path = scene.path(crash);
    make_private(crash, path);
    const os::FileInfo old = os::file_info(path);
    {
      const AtChange interrupter(
          at, [&](const os::Change&) { EXPECT_EQ(readable_by_others(scene.parent()), ""); });
      crash.make_new(path, false);
      looked = interrupter.was_reached();
    }
    EXPECT_EQ(os::file_info(path).mode, old.mode);
    EXPECT_EQ(readable_by_others(scene.parent()), "");
    if (::testing::Test::HasFailure()) return;
  }
}

void expect_syncs_by_the_descriptor_that_wrote(const CrashCase& crash) {
  const Scene scene(crash, true);
  std::mutex mutex;
  std::map<std::uint64_t, int> written_by;  // the descriptor that wrote to each inode
  std::size_t num_syncs = 0;
  const WatchChanges watch([&](const os::Change& change) {
    const std::lock_guard lock(mutex);
    if (change.kind == os::Change::Kind::write) written_by[change.inode] = change.descriptor;
    if (change.kind != os::Change::Kind::sync_file || !written_by.contains(change.inode)) return;
    ++num_syncs;
    EXPECT_EQ(change.descriptor, written_by[change.inode]);
  });
  crash.make_new(scene.path(crash), true);
  EXPECT_GT(num_syncs, 0U);
}

}  // namespace tenfold::test
