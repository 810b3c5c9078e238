#include "os/fs/directory.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <vector>

#include <tenfold/error.hpp>

#include "os/fs/change_observer.hpp"
#include "support/temporary_folder.hpp"
#include "support/watch_changes.hpp"

namespace tenfold::os {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

void write_text(const Path& path, const std::string& text) { std::ofstream(path) << text; }
std::string read_text(const Path& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

template <class Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "expected an Error";
  return Error(ErrorCode::unsupported, "no error");
}

TEST(Directory, ListsItsEntriesEachTime) {
  const TemporaryFolder folder;
  const Directory directory = Directory::open(folder.path());
  EXPECT_TRUE(directory.list().empty());
  write_text(folder / "a", "");
  std::filesystem::create_directory(folder / ".b");
  EXPECT_THAT(directory.list(), UnorderedElementsAre("a", ".b"));
  EXPECT_THAT(directory.list(), UnorderedElementsAre("a", ".b"));
}

TEST(Directory, StaysTheSameFolderIfItIsRenamedOrReplaced) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "a");
  write_text(folder / "a/x", "old");
  const Directory directory = Directory::open(folder / "a");
  std::filesystem::rename(folder / "a", folder / "b");
  std::filesystem::create_directory(folder / "a");
  EXPECT_EQ(File::open_read_at(directory, "x").read_all(3), "old");
  std::filesystem::remove_all(folder / "b");
  EXPECT_TRUE(directory.list().empty());
}

TEST(Directory, ReadsSymlinksAndFindsItsParentWithoutItsPath) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "a/b");
  write_text(folder / "a/x", "text");
  std::filesystem::create_symlink("../x", folder / "a/b/link");
  const Directory b = Directory::open(folder / "a/b");
  EXPECT_EQ(b.read_link("link"), "../x");
  EXPECT_EQ(b.read_link("none"), std::nullopt);
  EXPECT_EQ(b.open_parent().read_link("x"), std::nullopt);
  std::filesystem::rename(folder / "a", folder / "c");
  EXPECT_EQ(File::open_read_at(b.open_parent(), "x").read_all(4), "text");
}

TEST(Directory, AFileOrASymlinkInPlaceOfAFolderIsCorruptAndAMissingEntryNotFound) {
  const TemporaryFolder folder;
  write_text(folder / "file", "");
  std::filesystem::create_directory(folder / "real");
  std::filesystem::create_symlink("real", folder / "link");
  const Directory directory = Directory::open(folder.path());
  const Error file = error_of([&] { Directory::open_at(directory, "file"); });
  EXPECT_EQ(file.code(), ErrorCode::corrupt);
  EXPECT_EQ(file.what(), (folder / "file").string() + ": expected a folder, found a regular file");
  EXPECT_THAT(error_of([&] { Directory::open_at(directory, "link"); }).what(),
              HasSubstr("expected a folder, found a symbolic link"));
  EXPECT_EQ(error_of([&] { Directory::open_at(directory, "none"); }).code(),
            ErrorCode::file_not_found);
  for (const char* name : {"file", "link", "none"}) {
    EXPECT_FALSE(Directory::try_open_at(directory, name).valid()) << name;
  }
  EXPECT_TRUE(Directory::try_open_at(directory, "real").valid());
  EXPECT_EQ(error_of([&] { Directory::open_at(directory, ".."); }).code(),
            ErrorCode::invalid_argument);
}

TEST(Directory, IsAtFollowsSymlinksAndIsFalseForADanglingOne) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "real/other");
  std::filesystem::create_symlink("real", folder / "link");
  std::filesystem::create_symlink("none", folder / "dangling");
  const Directory real = Directory::open(folder / "real");
  EXPECT_TRUE(real.is_at(folder / "real"));
  EXPECT_TRUE(real.is_at(folder / "link"));
  for (const char* path : {"real/other", "dangling", "none", "none/real"}) {
    EXPECT_FALSE(real.is_at(folder / path)) << path;
  }
}

TEST(Directory, OpensAPathThroughASymlinkAndRefusesAFile) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "real");
  std::filesystem::create_symlink("real", folder / "link");
  write_text(folder / "file", "");
  EXPECT_TRUE(Directory::open(folder / "link").valid());
  const Error error = error_of([&] { Directory::open(folder / "file"); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_EQ(error.system_errno(), ENOTDIR);
}

TEST(Directory, RemoveTreeRemovesEverythingWithoutFollowingSymlinks) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "a/b/c");
  write_text(folder / "a/b/c/x", "x");
  write_text(folder / "a/b/y", "y");
  std::filesystem::create_directory(folder / "kept");
  write_text(folder / "kept/z", "z");
  std::filesystem::create_directory_symlink(folder / "kept", folder / "a/link");
  Directory directory = Directory::open(folder.path());
  directory.remove_tree("a");
  directory.remove_tree("a");
  EXPECT_THAT(directory.list(), UnorderedElementsAre("kept"));
  EXPECT_EQ(read_text(folder / "kept/z"), "z");
  std::filesystem::create_directory_symlink("kept", folder / "link");
  directory.remove_tree("link");
  EXPECT_EQ(read_text(folder / "kept/z"), "z");
  EXPECT_FALSE(os::exists(folder / "link"));
}

TEST(Directory, RemoveTreeRemovesFoldersWithoutPermissions) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "a/b");
  for (const char* path : {"a/b", "a"}) ASSERT_EQ(::chmod((folder / path).c_str(), 0), 0);
  Directory directory = Directory::open(folder.path());
  // root can remove the folders in any case, so check that permissions were added before.
  std::vector<unsigned> modes;
  {
    const test::WatchChanges watch([&modes](const Change& change) {
      struct stat status{};
      if (::fstatat(change.descriptor, change.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
        modes.push_back(status.st_mode & 07777);
      }
    });
    directory.remove_tree("a");
  }
  EXPECT_THAT(modes, ::testing::ElementsAre(0700U, 0700U));
  EXPECT_TRUE(directory.list().empty());
}

TEST(Directory, RenameReplacesExchangeSwapsAndRenameIfAbsentRefuses) {
  const TemporaryFolder folder;
  Directory directory = Directory::open(folder.path());
  write_text(folder / "a", "a");
  write_text(folder / "b", "b");
  EXPECT_FALSE(directory.rename_if_absent("a", "b"));
  EXPECT_TRUE(directory.exchange("a", "b"));
  EXPECT_EQ(read_text(folder / "a"), "b");
  EXPECT_EQ(read_text(folder / "b"), "a");
  directory.rename("a", "b");
  EXPECT_EQ(read_text(folder / "b"), "b");
  EXPECT_TRUE(directory.rename_if_absent("b", "c"));
  EXPECT_THAT(directory.list(), UnorderedElementsAre("c"));
}

TEST(Directory, ExchangeReportsThatItIsNotSupported) {
  const TemporaryFolder folder;
  Directory directory = Directory::open(folder.path());
  write_text(folder / "a", "a");
  write_text(folder / "b", "b");
  set_exchange_supported(false);
  EXPECT_FALSE(directory.exchange("a", "b"));
  set_exchange_supported(true);
  EXPECT_EQ(read_text(folder / "a"), "a");
}

/// Makes renameat2() fail with EPERM in this thread, as the seccomp profiles of some containers do.
/// Returns false if the system has no seccomp.
bool refuse_renameat2() {
  std::array<sock_filter, 4> filter = {{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_renameat2},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  const sock_fprog program{filter.size(), filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(Directory, RenamesWithoutRenameat2IfSeccompRefusesIt) {
  const TemporaryFolder folder;
  Directory directory = Directory::open(folder.path());
  write_text(folder / "a", "a");
  write_text(folder / "b", "b");
  const auto in_thread = [&] {  // because a filter cannot be removed from its thread
    if (!refuse_renameat2()) return false;
    EXPECT_FALSE(directory.exchange("a", "b"));
    EXPECT_FALSE(directory.rename_if_absent("a", "b"));
    EXPECT_TRUE(directory.rename_if_absent("a", "c"));
    return true;
  };
  if (!std::async(std::launch::async, in_thread).get()) GTEST_SKIP() << "no seccomp";
  EXPECT_EQ(read_text(folder / "b"), "b");
  EXPECT_EQ(read_text(folder / "c"), "a");
}

TEST(Directory, RenamesWithoutPermissionFail) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const TemporaryFolder folder;
  Directory directory = Directory::open(folder.path());
  write_text(folder / "a", "a");
  write_text(folder / "b", "b");
  ASSERT_EQ(::chmod(folder.path().c_str(), 01777), 0);  // others may not rename files of root
  const auto in_thread = [&] {
    constexpr uid_t kNobody = 65534;
    ::setfsuid(kNobody);  // in this thread only
    EXPECT_EQ(error_of([&] { directory.exchange("a", "b"); }).system_errno(), EPERM);
    EXPECT_EQ(error_of([&] { directory.rename_if_absent("a", "c"); }).system_errno(), EPERM);
  };
  std::async(std::launch::async, in_thread).get();
}

TEST(Directory, HardLinksAFileOfAnotherFolder) {
  const TemporaryFolder folder;
  Directory directory = Directory::open(folder.path());
  directory.create_directory("sub");
  Directory sub = Directory::open_at(directory, "sub");
  write_text(folder / "sub/x", "x");
  EXPECT_TRUE(directory.link_from(sub, "x", "y"));
  EXPECT_TRUE(directory.entry_info("y")->same_file(*sub.entry_info("x")));
  EXPECT_EQ(error_of([&] { directory.link_from(sub, "x", "y"); }).system_errno(), EEXIST);
}

TEST(Directory, LocksExcludeEachOther) {
  const TemporaryFolder folder;
  Directory a = Directory::open(folder.path());
  Directory b = Directory::open(folder.path());
  EXPECT_EQ(a.try_lock_exclusive(), LockResult::acquired);
  EXPECT_EQ(b.try_lock_shared(), LockResult::held);
  a.unlock();
  EXPECT_EQ(b.try_lock_shared(), LockResult::acquired);
  EXPECT_EQ(a.try_lock_exclusive(), LockResult::held);
}

TEST(Directory, CopiesPermissionBits) {
  const TemporaryFolder folder;
  Directory directory = Directory::open(folder.path());
  directory.create_directory("like");
  ASSERT_EQ(::chmod((folder / "like").c_str(), 02750), 0);
  directory.create_directory("x", 0700);
  EXPECT_EQ(directory.entry_info("x")->mode, 0700U);
  Directory x = Directory::open_at(directory, "x");
  x.copy_permissions(*directory.entry_info("like"));
  EXPECT_EQ(x.info().mode, 02750U);
}

TEST(Parent, SplitsAPathAndCreatesMissingParents) {
  const TemporaryFolder folder;
  const Parent parent = open_parent(folder / "a/b/c/", true);
  EXPECT_EQ(parent.name, "c");
  EXPECT_TRUE(parent.directory.info().same_file(file_info(folder / "a/b")));
  EXPECT_EQ(error_of([&] { open_parent(folder / "n/x", false); }).code(),
            ErrorCode::file_not_found);
  EXPECT_FALSE(os::exists(folder / "n"));
  for (const char* path : {"", "/", "..", "a/.."}) {
    EXPECT_EQ(error_of([&] { open_parent(path, false); }).code(), ErrorCode::invalid_argument)
        << path;
  }
  EXPECT_EQ(open_parent("plain", false).name, "plain");
  EXPECT_EQ(open_parent("./plain", true).name, "plain");
}

TEST(Parent, IsCreatedExceptForAMissingFolderBeforeTwoDots) {
  const TemporaryFolder folder;
  const Parent parent = open_parent(folder / "a/.//./b/./x", true);
  EXPECT_EQ(parent.name, "x");
  EXPECT_TRUE(parent.directory.info().same_file(file_info(folder / "a/b")));
  EXPECT_TRUE(
      open_parent(folder / "a/../x", true).directory.info().same_file(file_info(folder.path())));
  EXPECT_EQ(error_of([&] { open_parent(folder / "new/../x", true); }).code(),
            ErrorCode::file_not_found);
  EXPECT_FALSE(os::exists(folder / "new"));
}

TEST(Parent, AnotherProcessMayCreateAMissingParentFirst) {
  const TemporaryFolder folder;
  {
    const test::WatchChanges create_first([&](const Change& change) {
      if (change.kind != Change::Kind::create_directory) return;
      std::filesystem::create_directories(folder / "a/b");
    });
    const Parent parent = open_parent(folder / "a/b/c", true);
    EXPECT_TRUE(parent.directory.info().same_file(file_info(folder / "a/b")));
  }
  const test::WatchChanges create_file([&](const Change&) { write_text(folder / "file", ""); });
  EXPECT_EQ(error_of([&] { open_parent(folder / "file/c", true); }).system_errno(), ENOTDIR);
}

}  // namespace
}  // namespace tenfold::os
