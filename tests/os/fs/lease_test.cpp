#include "os/fs/lease.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <tenfold/error.hpp>

#include "os/process.hpp"
#include "support/leases.hpp"
#include "support/temporary_folder.hpp"
#include "support/watch_changes.hpp"

namespace tenfold::os {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

std::set<std::string> entries_of(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

/// Runs `work` in a child, which exits with the result, or kills itself if the result is negative.
/// Returns the exit code, or -1 if a signal ended the child.
int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int code = work();
    if (code < 0) ::raise(SIGKILL);
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Leaves a dead lease: its process was killed.
void leave_dead(const Directory& directory) {
  EXPECT_EQ(in_child([&] {
              new Lease(*Lease::try_acquire(directory, "x"));
              return -1;
            }),
            -1);
}

/// The parameter is true for leases that are symbolic links, and false for files, which are used on
/// file systems without symbolic links.
class EveryLease : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { before_ = set_symlinks_supported(GetParam()); }
  void TearDown() override {
    set_symlinks_supported(before_);
    set_boot_id(std::nullopt);
    set_lease_timeout(timeout_);
  }

  const TemporaryFolder folder_;
  const Directory directory_ = Directory::open(folder_.path());
  std::chrono::seconds timeout_ = set_lease_timeout(std::chrono::minutes(10));

 private:
  bool before_ = true;
};

INSTANTIATE_TEST_SUITE_P(Leases, EveryLease, ::testing::Values(true, false),
                         [](const auto& row) { return row.param ? "Links" : "Files"; });

TEST_P(EveryLease, IsHeldByOneOwnerUntilItIsDestroyed) {
  {
    const auto lease = Lease::try_acquire(directory_, "x");
    ASSERT_TRUE(lease);
    EXPECT_TRUE(lease->is_held());
    EXPECT_TRUE(is_leased(directory_, "x"));
    EXPECT_FALSE(Lease::try_acquire(directory_, "x"));
    EXPECT_TRUE(Lease::try_acquire(directory_, "y"));
    EXPECT_EQ(in_child([&] { return Lease::try_acquire(directory_, "x") ? 1 : 0; }), 0);
  }
  EXPECT_FALSE(is_leased(directory_, "x"));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_P(EveryLease, IsTakenOverImmediatelyFromACrashedProcess) {
  leave_dead(directory_);
  EXPECT_EQ(entries_of(folder_.path()), std::set<std::string>{"x"});
  EXPECT_FALSE(is_leased(directory_, "x"));
  const auto lease = Lease::try_acquire(directory_, "x");
  ASSERT_TRUE(lease);
  EXPECT_TRUE(lease->is_held());
  EXPECT_EQ(entries_of(folder_.path()), std::set<std::string>{"x"});
}

TEST_P(EveryLease, IsDeadIfItsProcessIsAZombie) {
  const pid_t child = ::fork();
  if (child == 0) {
    new Lease(*Lease::try_acquire(directory_, "x"));
    ::_exit(0);
  }
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(Lease::try_acquire(directory_, "x"));
  ::waitpid(child, nullptr, 0);
}

TEST_P(EveryLease, AForkedChildNeitherHoldsNorReleasesIt) {
  auto lease = Lease::try_acquire(directory_, "x");
  ASSERT_TRUE(lease);
  EXPECT_EQ(in_child([&] {
              const bool held = lease->is_held();
              lease.reset();
              return held || !is_leased(directory_, "x") ? 1 : 0;
            }),
            0);
  EXPECT_TRUE(lease->is_held());
}

TEST_P(EveryLease, ExpiresAfterTheTimeoutOnAnotherHost) {
  const auto lease = Lease::try_acquire(directory_, "x");
  ASSERT_TRUE(lease);
  // The lease now has the boot ID of another host.
  set_boot_id(BootId{std::byte{7}});
  EXPECT_FALSE(Lease::try_acquire(directory_, "x"));
  const timespec old[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(::utimensat(directory_.fd(), "x", old, AT_SYMLINK_NOFOLLOW), 0);
  const auto taken = Lease::try_acquire(directory_, "x");
  ASSERT_TRUE(taken);
  EXPECT_TRUE(taken->is_held());
  EXPECT_FALSE(lease->is_held());
  EXPECT_EQ(entries_of(folder_.path()), std::set<std::string>{"x"});
}

/// Sets the modification time of an entry.
void set_modified(const Directory& directory, const std::string& name, std::int64_t seconds) {
  const timespec times[2] = {{seconds, 0}, {seconds, 0}};
  ASSERT_EQ(::utimensat(directory.fd(), name.c_str(), times, AT_SYMLINK_NOFOLLOW), 0);
}

/// Waits until the heartbeat of this process has refreshed the lease.
void await_heartbeat(const Directory& directory, const std::string& name) {
  set_modified(directory, name, 1);
  while (directory.entry_info(name)->modified_ns == 1'000'000'000) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Runs `work` in a child whose heartbeat has a short interval, because the heartbeat thread of
/// this process may already be in a wait of 30 s. SIGALRM ends the child after 300 s.
int with_fast_heartbeat(const std::function<int()>& work) {
  return in_child([&] {
    ::alarm(300);
    set_lease_heartbeat(std::chrono::milliseconds(1));
    return work();
  });
}

TEST_P(EveryLease, TheHeartbeatRefreshesEveryHeldLease) {
  EXPECT_EQ(with_fast_heartbeat([&] {
              const auto x = Lease::try_acquire(directory_, "x");
              await_heartbeat(directory_, "x");
              const auto y = Lease::try_acquire(directory_, "y");
              for (int i = 0; i < 3; ++i) {
                await_heartbeat(directory_, "x");
                await_heartbeat(directory_, "y");
              }
              return x->is_held() && y->is_held() ? 0 : 1;
            }),
            0);
}

TEST_P(EveryLease, TheHeartbeatDoesNotRefreshALeaseThatAnotherProcessTookOver) {
  EXPECT_EQ(with_fast_heartbeat([&] {
              const auto lost = Lease::try_acquire(directory_, "x");
              const auto held = Lease::try_acquire(directory_, "y");
              test::take_over(folder_ / "x");
              // A heartbeat may have examined "x" before "x" was taken over. The second refresh of
              // "y" shows that this heartbeat is complete.
              for (int i = 0; i < 2; ++i) await_heartbeat(directory_, "y");
              set_modified(directory_, "x", 1);
              for (int i = 0; i < 2; ++i) await_heartbeat(directory_, "y");
              return directory_.entry_info("x")->modified_ns == 1'000'000'000 ? 0 : 1;
            }),
            0);
}

TEST_P(EveryLease, OnAnotherHostIsTakenOverOnlyAfterTheTimeout) {
  EXPECT_EQ(timeout_, std::chrono::minutes(10)) << "as docs/reliability.md states";
  // The timeout is hours long, so that the duration of this test does not matter.
  set_lease_timeout(std::chrono::hours(100));
  const auto lost = Lease::try_acquire(directory_, "x");
  ASSERT_TRUE(lost);
  set_boot_id(BootId{std::byte{7}});
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto set_age = [&](std::chrono::hours age) {
    set_modified(directory_, "x",
                 std::chrono::duration_cast<std::chrono::seconds>(now - age).count());
  };
  for (const int hours : {0, 50, 98}) {
    set_age(std::chrono::hours(hours));
    EXPECT_FALSE(Lease::try_acquire(directory_, "x")) << hours;
    EXPECT_TRUE(is_leased(directory_, "x")) << hours;
  }
  set_age(std::chrono::hours(101));
  EXPECT_FALSE(is_leased(directory_, "x"));
  EXPECT_TRUE(Lease::try_acquire(directory_, "x"));
  EXPECT_FALSE(lost->is_held());
}

TEST_P(EveryLease, OfAnotherHostIsDeadEvenWithATimeOf1684) {
  // Only some file systems, such as tmpfs, store times before 1901.
  const std::filesystem::path memory = "/dev/shm";
  const TemporaryFolder folder(fs::is_directory(memory) ? memory : std::filesystem::path());
  const Directory directory = Directory::open(folder.path());
  const auto lease = Lease::try_acquire(directory, "x");
  ASSERT_TRUE(lease);
  set_boot_id(BootId{std::byte{7}});
  set_modified(directory, "x", -9'000'000'000);
  EXPECT_FALSE(is_leased(directory, "x"));
}

TEST_P(EveryLease, AProcessThatLostItNeitherHoldsNorRemovesIt) {
  auto lost = Lease::try_acquire(directory_, "x");
  ASSERT_TRUE(lost);
  test::take_over(folder_ / "x");
  EXPECT_FALSE(lost->is_held());
  EXPECT_FALSE(Lease::try_acquire(directory_, "x"));
  lost.reset();
  EXPECT_EQ(lease_holder(directory_, "x"), "process 1 on other-host");
}

TEST_P(EveryLease, IsDeadIfItsProcessIdWasReused) {
  // The lease has the ID of this process and another start time.
  std::string text;
  {
    const auto lease = Lease::try_acquire(directory_, "x");
    text = directory_.entry_info("x")->is_symlink
               ? *directory_.read_link("x")
               : File::open_read_at(directory_, "x").read_all(1000);
  }
  std::istringstream fields(text);
  std::vector<std::string> words(std::istream_iterator<std::string>(fields), {});
  ASSERT_EQ(words.size(), 7U);
  words[4] += "1";
  std::string other;
  for (const std::string& word : words) other += (other.empty() ? "" : " ") + word;
  if (GetParam()) {
    fs::create_symlink(other, folder_ / "x");
  } else {
    std::ofstream(folder_ / "x") << other;
  }
  EXPECT_TRUE(Lease::try_acquire(directory_, "x"));
}

TEST_P(EveryLease, IgnoresFilesThatAreNotLeases) {
  set_lease_timeout(std::chrono::seconds(0));
  std::ofstream(folder_ / "file") << "a foreign file";
  fs::create_directory(folder_ / "folder");
  fs::create_symlink("file", folder_ / "link");
  for (const std::string name : {"file", "folder", "link"}) {
    EXPECT_FALSE(Lease::try_acquire(directory_, name)) << name;
  }
  EXPECT_EQ(entries_of(folder_.path()), (std::set<std::string>{"file", "folder", "link"}));
}

TEST_P(EveryLease, ACrashAtAnyChangeOfATakeoverLeavesALeaseThatCanBeTakenOver) {
  // A process that crashes before it writes the file of its lease leaves an empty file, which
  // identifies no process and therefore expires only after the timeout.
  if (!GetParam()) set_lease_timeout(std::chrono::seconds(0));
  bool killed = true;
  for (std::size_t at = 0; killed; ++at) {
    SCOPED_TRACE("killed before change " + std::to_string(at));
    leave_dead(directory_);
    killed = in_child([&] {
               const test::AtChange kill(at, [](const Change&) { ::raise(SIGKILL); });
               new Lease(*Lease::try_acquire(directory_, "x"));
               return 0;
             }) == -1;
    {
      const auto lease = Lease::try_acquire(directory_, "x");
      ASSERT_TRUE(lease);
      EXPECT_EQ(entries_of(folder_.path()), std::set<std::string>{"x"});
    }
    EXPECT_TRUE(fs::is_empty(folder_.path()));
  }
}

TEST_P(EveryLease, ATakeoverOfAnEmptyFileKeepsANewerOne) {
  const fs::path path = folder_ / "x";
  std::ofstream{path};  // a process crashed before it wrote its lease
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
  // Just before this process can remove the expired lease, another process replaces it by the file
  // of a new lease, which is still empty.
  const test::WatchChanges replace([&](const Change& change) {
    if (change.name != "x~" || change.kind == Change::Kind::remove_file) return;
    fs::remove(path);
    std::ofstream{path};
  });
  EXPECT_FALSE(Lease::try_acquire(directory_, "x"));
  EXPECT_EQ(entries_of(folder_.path()), std::set<std::string>{"x"});
}

/// Returns a function that refuses to remove entries named `name`, as a folder with the sticky bit
/// does.
test::WatchChanges::Before refuse_to_remove(const std::string& name) {
  return [name](const Change& change) {
    if (change.kind != Change::Kind::remove_file || change.name != name) return;
    throw Error::io(EPERM, name, "cannot be removed");
  };
}

TEST_P(EveryLease, ATakeoverThatIsNotAllowedLeavesNoOtherEntry) {
  leave_dead(directory_);
  const test::WatchChanges refuse(refuse_to_remove("x"));
  EXPECT_FALSE(Lease::try_acquire(directory_, "x"));
  EXPECT_EQ(entries_of(folder_.path()), std::set<std::string>{"x"});
}

TEST_P(EveryLease, IsAcquiredIfALeftoverCannotBeRemoved) {
  leave_dead(directory_);
  fs::rename(folder_ / "x", folder_ / "x~");
  const test::WatchChanges refuse(refuse_to_remove("x~"));
  const auto lease = Lease::try_acquire(directory_, "x");
  ASSERT_TRUE(lease);
  EXPECT_TRUE(lease->is_held());
}

TEST(LeaseHolder, IsEmptyForTextWithControlCharacters) {
  const TemporaryFolder folder;
  const Directory directory = Directory::open(folder.path());
  fs::create_symlink("tenfold-lease-1 0 1 1 1 0 other\x1B[2J", folder / "x");
  fs::create_symlink("tenfold-lease-1 0 1 1\x1B[2J 1 0 other", folder / "y");
  EXPECT_EQ(lease_holder(directory, "x"), "");
  EXPECT_EQ(lease_holder(directory, "y"), "");
}

TEST_P(EveryLease, OnlyOneOfManyProcessesAcquiresIt) {
  // The processes first compete for a dead lease, then for a released one. A holder creates the
  // file "alone" and removes it, so the file already exists only if another process holds the
  // lease, too.
  leave_dead(directory_);
  constexpr int kProcesses = 4;
  constexpr int kRounds = 60;
  const auto count_up = [&] {
    for (int done = 0; done < kRounds;) {
      auto lease = Lease::try_acquire(directory_, "x");
      if (!lease) continue;
      const bool is_first = !directory_.entry_info("alone");
      if (!is_first) return 1;
      File::create_at(directory_, "alone");
      if (!lease->is_held()) return 2;
      Directory::open(folder_.path()).remove_file("alone");
      ++done;
    }
    return 0;
  };
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) ::_exit(count_up());
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  }
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST(WriterLock, ExcludesOthersWithAndWithoutLocks) {
  for (const bool locks : {true, false}) {
    const TemporaryFolder folder;
    const test::FailLocks fail(locks ? 0 : ENOLCK);
    const Directory directory = Directory::open(folder.path());
    File::create_at(directory, "x");
    File a = File::open_read_at(directory, "x");
    File b = File::open_read_at(directory, "x");
    {
      const auto lock = WriterLock::try_acquire(directory, "x", a);
      ASSERT_TRUE(lock);
      EXPECT_FALSE(WriterLock::try_acquire(directory, "x", b));
      EXPECT_TRUE(WriterLock::is_locked(directory, "x", b));
      a.close();
    }
    EXPECT_FALSE(WriterLock::is_locked(directory, "x", b));
    EXPECT_TRUE(WriterLock::try_acquire(directory, "x", b));
    EXPECT_EQ(entries_of(folder.path()), std::set<std::string>{"x"});
  }
}

TEST(WriterLock, IsLostToAProcessThatTakesOverItsLease) {
  const TemporaryFolder folder;
  const test::FailLocks fail(ENOLCK);
  const Directory directory = Directory::open(folder.path());
  File file = File::create_at(directory, "x");
  const auto lock = WriterLock::try_acquire(directory, "x", file);
  ASSERT_TRUE(lock);
  EXPECT_TRUE(lock->is_held());
  test::take_over(folder / ".x.tenfold-lock");
  EXPECT_FALSE(lock->is_held());
}

TEST(LockHolder, NamesTheProcessThatHoldsALock) {
  // The folder is on tmpfs, because on btrfs and overlayfs, /proc/locks and stat() report different
  // device numbers for the same file.
  const TemporaryFolder folder("/dev/shm");
  const Directory directory = Directory::open(folder.path());
  File file = File::create_at(directory, "x");
  EXPECT_FALSE(lock_holder(file.info()));
  ASSERT_EQ(file.try_lock_shared(), LockResult::acquired);
  EXPECT_EQ(lock_holder(file.info()), process_id());
}

}  // namespace
}  // namespace tenfold::os
