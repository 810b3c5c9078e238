#include "formats/shared/commit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <tenfold/error.hpp>

#include "formats/folder/write_through_lock.hpp"
#include "os/fs/change_observer.hpp"
#include "os/memory/mapping.hpp"
#include "support/leases.hpp"
#include "support/temporary_folder.hpp"
#include "support/warnings.hpp"
#include "support/watch_changes.hpp"

namespace tenfold {

using namespace detail::formats;
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using ::testing::HasSubstr;
using Names = std::set<std::string>;

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Names entries_of(const fs::path& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

void save_file(const fs::path& path, const std::string& text, bool durable = false) {
  FileReplacement replacement(path, 0);
  replacement.file().write_at(0, std::as_bytes(std::span(text)));
  replacement.publish(durable);
}

void save_folder(const fs::path& path, const std::string& text, bool durable = false) {
  FolderReplacement replacement(path, 0);
  os::File file = os::File::create_at(replacement.folder(), "x");
  file.write_at(0, std::as_bytes(std::span(text)));
  replacement.publish(durable);
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

/// Runs `work` in a child, which is then killed while it holds its locks.
template <class Work>
void in_killed_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST(FileReplacement, CreatesAndReplacesWithoutLeftoverFiles) {
  const TemporaryFolder folder;
  for (const std::string text : {"one", "two", "3"}) {
    for (const bool durable : {false, true}) {
      save_file(folder / "x", text, durable);
      EXPECT_EQ(read_text(folder / "x"), text);
      EXPECT_EQ(entries_of(folder.path()), Names{"x"});
    }
  }
}

TEST(FileReplacement, WithoutPublishNothingChanges) {
  const TemporaryFolder folder;
  write_text(folder / "x", "old");
  {
    FileReplacement replacement(folder / "x", 0);
    EXPECT_EQ(entries_of(folder.path()), (Names{".x.tenfold-0", ".x.tenfold-0.lease", "x"}));
  }
  EXPECT_EQ(read_text(folder / "x"), "old");
  EXPECT_EQ(entries_of(folder.path()), Names{"x"});
}

TEST(FileReplacement, MappingsOfTheOldFileKeepItsBytes) {
  const TemporaryFolder folder;
  write_text(folder / "x", "old");
  const Buffer old = os::map_file(os::File::open_read(folder / "x"), 0, 3, os::MapKind::read_only);
  save_file(folder / "x", "new");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(old.data()), 3), "old");
}

TEST(FileReplacement, KeepsPermissionsAndFollowsASymlink) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "sub");
  write_text(folder / "sub/real", "old");
  ASSERT_EQ(::chmod((folder / "sub/real").c_str(), 0604), 0);
  fs::create_symlink("sub/real", folder / "x");
  save_file(folder / "x", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "x"));
  EXPECT_EQ(read_text(folder / "sub/real"), "new");
  EXPECT_EQ(os::file_info(folder / "sub/real").mode, 0604U);
  EXPECT_EQ(entries_of(folder / "sub"), Names{"real"});
}

TEST(FileReplacement, RefusesAFolderAndASpecialFile) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "x");
  const Error error = error_of([&] { FileReplacement replacement(folder / "x", 0); });
  EXPECT_EQ(error.system_errno(), EISDIR);
  ASSERT_EQ(::mkfifo((folder / "f").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { FileReplacement replacement(folder / "f", 0); }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(entries_of(folder.path()), (Names{"f", "x"}));
}

TEST(FileReplacement, CleansUpAfterDeadWriters) {
  const TemporaryFolder folder;
  // Three replacements exist at once, so that three temporary entries remain, one of
  // which is a folder.
  in_killed_child([&] {
    new FileReplacement(folder / "x", 0);
    new FolderReplacement(folder / "x", 0);
    new FileReplacement(folder / "x", 0);
  });
  ASSERT_EQ(entries_of(folder.path()),
            (Names{".x.tenfold-0", ".x.tenfold-0.lease", ".x.tenfold-1", ".x.tenfold-1.lease",
                   ".x.tenfold-2", ".x.tenfold-2.lease"}));
  save_file(folder / "x", "new");
  EXPECT_EQ(entries_of(folder.path()), Names{"x"});
}

TEST(FileReplacement, KeepsTheSiblingOfALiveWriter) {
  const TemporaryFolder folder;
  {
    FileReplacement slow(folder / "x", 0);
    slow.file().write_at(0, std::as_bytes(std::span("slow", 4)));
    save_file(folder / "x", "quick");
    EXPECT_EQ(read_text(folder / "x"), "quick");
    slow.publish(false);
  }
  EXPECT_EQ(read_text(folder / "x"), "slow");
  EXPECT_EQ(entries_of(folder.path()), Names{"x"});
}

TEST(FileReplacement, ConcurrentWritersLeaveOneCompleteVersion) {
  const TemporaryFolder folder;
  save_file(folder / "x", std::string(5000, 'o'));
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop) {
      const std::string text = read_text(folder / "x");
      EXPECT_EQ(text, std::string(5000, text[0]));
    }
  });
  std::vector<std::thread> writers;
  for (const char letter : {'a', 'b', 'c', 'd'}) {
    writers.emplace_back([&, letter] {
      for (int round = 0; round < 60; ++round) save_file(folder / "x", std::string(5000, letter));
    });
  }
  for (std::thread& writer : writers) writer.join();
  stop = true;
  reader.join();
  const std::string text = read_text(folder / "x");
  ASSERT_EQ(text.size(), 5000U);
  EXPECT_EQ(text, std::string(5000, text[0]));
  EXPECT_EQ(entries_of(folder.path()), Names{"x"});
}

TEST(FileReplacement, WorksWithTheLongestName) {
  const TemporaryFolder folder;
  const std::string name(255, 'n');
  save_file(folder / name, "one");
  save_file(folder / name, "two");
  EXPECT_EQ(read_text(folder / name), "two");
  EXPECT_EQ(entries_of(folder.path()), Names{name});
}

TEST(FileReplacement, CreatesMissingParentFolders) {
  const TemporaryFolder folder;
  save_file(folder / "a/b/x", "new", true);
  EXPECT_EQ(read_text(folder / "a/b/x"), "new");
}

TEST(FolderReplacement, CreatesAndReplacesWithoutLeftoverFiles) {
  const TemporaryFolder folder;
  for (const bool exchange : {true, false}) {
    os::set_exchange_supported(exchange);
    for (const std::string text : {"one", "two", "3"}) {
      save_folder(folder / "x", text, true);
      EXPECT_EQ(read_text(folder / "x/x"), text);
      EXPECT_EQ(entries_of(folder.path()), Names{"x"});
    }
  }
  os::set_exchange_supported(true);
}

TEST(FolderReplacement, KeepsPermissions) {
  const TemporaryFolder folder;
  save_folder(folder / "x", "old");
  ASSERT_EQ(::chmod((folder / "x").c_str(), 0711), 0);
  save_folder(folder / "x", "new");
  EXPECT_EQ(os::file_info(folder / "x").mode, 0711U);
}

TEST(FolderReplacement, ReadersOfTheOldFolderKeepItsFiles) {
  const TemporaryFolder folder;
  save_folder(folder / "x", "old");
  const os::Directory old = os::Directory::open(folder / "x");
  const os::File file = os::File::open_read_at(old, "x");
  save_folder(folder / "x", "new");
  EXPECT_EQ(file.read_all(3), "old");
  EXPECT_FALSE(os::File::try_open_read_at(old, "x").valid());
}

TEST(FolderReplacement, RefusesAFileAndAFolderHeldOpenForWriting) {
  const TemporaryFolder folder;
  write_text(folder / "f", "");
  EXPECT_EQ(error_of([&] { FolderReplacement replacement(folder / "f", 0); }).system_errno(),
            ENOTDIR);
  ASSERT_EQ(::mkfifo((folder / "p").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { FolderReplacement replacement(folder / "p", 0); }).what(),
              HasSubstr("expected a folder or nothing, found a special file"));
  save_folder(folder / "x", "old");
  {
    const folder::WriteThroughLock held = folder::lock_for_writing_through(folder / "x");
    const folder::WriteThroughLock held_too = folder::lock_for_writing_through(folder / "x");
    const Error error = error_of([&] { FolderReplacement replacement(folder / "x", 0); });
    EXPECT_EQ(error.system_errno(), EBUSY);
    EXPECT_THAT(error.what(), HasSubstr("the folder is in use"));
  }
  save_folder(folder / "x", "new");
  EXPECT_EQ(read_text(folder / "x/x"), "new");
  EXPECT_EQ(entries_of(folder.path()), (Names{"f", "p", "x"}));
}

TEST(FolderReplacement, ExcludesWriteThroughHandlesWhileItIsPrepared) {
  const TemporaryFolder folder;
  save_folder(folder / "x", "old");
  FolderReplacement replacement(folder / "x", 0);
  EXPECT_EQ(error_of([&] { folder::lock_for_writing_through(folder / "x"); }).system_errno(),
            EBUSY);
  replacement.publish(false);
  EXPECT_TRUE(folder::lock_for_writing_through(folder / "x").folder.valid());
}

TEST(FolderReplacement, AFolderThatAppearedConcurrentlyIsReplaced) {
  const TemporaryFolder folder;
  FolderReplacement replacement(folder / "x", 0);
  save_folder(folder / "x", "meanwhile");
  os::File::create_at(replacement.folder(), "y").write_at(0, std::as_bytes(std::span("y", 1)));
  replacement.publish(false);
  EXPECT_EQ(entries_of(folder / "x"), Names{"y"});
  EXPECT_EQ(entries_of(folder.path()), Names{"x"});
}

TEST(FolderReplacement, AFolderThatWasRemovedConcurrentlyIsReplaced) {
  const TemporaryFolder folder;
  for (const bool exchange : {true, false}) {
    os::set_exchange_supported(exchange);
    save_folder(folder / "x", "old");
    FolderReplacement replacement(folder / "x", 0);
    fs::remove_all(folder / "x");
    os::File::create_at(replacement.folder(), "y").write_at(0, std::as_bytes(std::span("y", 1)));
    replacement.publish(false);
    EXPECT_EQ(entries_of(folder / "x"), Names{"y"});
    EXPECT_EQ(entries_of(folder.path()), Names{"x"});
  }
  os::set_exchange_supported(true);
}

/// Runs `work` in a child that does not run as root, so that file permissions apply. Returns the
/// exit code of the child.
template <class Work>
int as_nobody(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(100);
    int result = 101;
    try {
      result = work();
    } catch (const Error& error) {
      std::cerr << error.what() << "\n";
    }
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(FolderReplacement, AReadOnlyFolderInTheOldTreeIsRemovedWithIt) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  const int result = as_nobody([&] {
    for (const std::string text : {"old", "new"}) {
      FolderReplacement replacement(folder / "x", 0);
      replacement.folder().create_directory("sub");
      {
        const os::Directory sub = os::Directory::open_at(replacement.folder(), "sub");
        os::File::create_at(sub, "y").write_at(0, std::as_bytes(std::span(text)));
      }
      fs::permissions(folder / ".x.tenfold-0/sub", fs::perms::owner_read | fs::perms::owner_exec);
      replacement.publish(false);
    }
    return read_text(folder / "x/sub/y") == "new" ? 0 : 1;
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(entries_of(folder.path()), Names{"x"});
}

TEST(FolderReplacement, AFolderWithoutWritePermissionIsRefusedBeforeAByteIsWritten) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  const int result = as_nobody([&] {
    save_folder(folder / "x", "old");
    fs::permissions(folder / "x", fs::perms::owner_read | fs::perms::owner_exec);
    try {
      FolderReplacement replacement(folder / "x", 0);
    } catch (const Error& error) {
      return error.system_errno() == EACCES && entries_of(folder.path()) == Names{"x"} ? 0 : 1;
    }
    return 2;
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(read_text(folder / "x/x"), "old");
}

TEST(FileReplacement, AReadOnlyFileIsReplacedAndStaysReadOnly) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  const int result = as_nobody([&] {
    save_file(folder / "x", "old");
    fs::permissions(folder / "x", fs::perms::owner_read);
    save_file(folder / "x", "new");
    return 0;
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(read_text(folder / "x"), "new");
  EXPECT_EQ(os::file_info(folder / "x").mode, 0400U);
  EXPECT_EQ(entries_of(folder.path()), Names{"x"});
}

void refuse_to_remove(const os::Change& change) {
  const bool removes = change.kind == os::Change::Kind::remove_file ||
                       change.kind == os::Change::Kind::remove_directory;
  if (removes) throw Error::io(EACCES, change.name, "permission denied");
}

TEST(Replacement, AnOldVersionThatCannotBeRemovedIsAWarning) {
  const TemporaryFolder folder;
  save_file(folder / "f", "old");
  save_folder(folder / "x", "old");
  {
    const test::Warnings warnings;
    const test::WatchChanges nothing_goes(refuse_to_remove);
    save_file(folder / "f", "new");
    save_folder(folder / "x", "new");
    ASSERT_EQ(warnings.all().size(), 2U);
    EXPECT_THAT(warnings.all()[0], HasSubstr("f: saved; the previous version, \".f.tenfold-0\", "
                                             "cannot be removed: "));
    EXPECT_THAT(warnings.all()[1], HasSubstr("x: saved; the previous version"));
  }
  EXPECT_EQ(read_text(folder / "f"), "new");
  EXPECT_EQ(read_text(folder / "x/x"), "new");
  save_file(folder / "f", "newer");
  save_folder(folder / "x", "newer");
  EXPECT_EQ(entries_of(folder.path()), (Names{"f", "x"}));
}

TEST(Replacement, AnOldVersionMayBeRemovedJustBeforeTheNamesAreExchanged) {
  const TemporaryFolder folder;
  save_file(folder / "f", "old");
  save_folder(folder / "x", "old");
  {
    const test::WatchChanges remove_target([&](const os::Change& change) {
      if (change.kind == os::Change::Kind::exchange) {
        fs::remove_all(folder / (fs::is_directory(folder / "x") ? "x" : "f"));
      }
    });
    save_folder(folder / "x", "new");
    fs::remove_all(folder / "x");
    save_file(folder / "f", "new");
  }
  EXPECT_EQ(read_text(folder / "f"), "new");
  EXPECT_EQ(entries_of(folder.path()), Names{"f"});
}

TEST(Replacement, AForkedChildNeitherPublishesNorRemovesASibling) {
  const TemporaryFolder folder;
  save_file(folder / "f", "old");
  FileReplacement replacement(folder / "f", 0);
  FolderReplacement other(folder / "x", 0);
  replacement.file().write_at(0, std::as_bytes(std::span("new", 3)));
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      replacement.publish(false);
    } catch (const Error& error) {
      code = error.system_errno() == EBUSY ? 0 : 2;
    }
    replacement.~FileReplacement();
    other.~FolderReplacement();
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  replacement.publish(false);
  other.publish(false);
  EXPECT_EQ(read_text(folder / "f"), "new");
  EXPECT_TRUE(fs::is_directory(folder / "x"));
}

TEST(FileReplacement, RefusesToPublishASiblingOfAnotherWriter) {
  const TemporaryFolder folder;
  save_file(folder / "x", "old");
  {
    FileReplacement replacement(folder / "x", 0);
    replacement.file().write_at(0, std::as_bytes(std::span("new", 3)));
    // Another host considered this process dead, removed its temporary file, and started to write a
    // file of the same name.
    fs::remove(folder / ".x.tenfold-0");
    write_text(folder / ".x.tenfold-0", "half");
    const Error error = error_of([&] { replacement.publish(false); });
    EXPECT_EQ(error.system_errno(), EBUSY);
    EXPECT_THAT(error.what(), HasSubstr("not saved"));
  }
  EXPECT_EQ(read_text(folder / "x"), "old");
}

TEST(Replacement, ARemovedTemporaryFileOrFolderIsNamed) {
  const TemporaryFolder folder;
  FileReplacement file(folder / "f", 0);
  FolderReplacement other(folder / "x", 0);
  fs::remove(folder / ".f.tenfold-0");
  fs::remove(folder / ".x.tenfold-0");
  for (const auto& publish : std::vector<std::function<void()>>{[&] { file.publish(false); },
                                                                [&] { other.publish(false); }}) {
    const Error error = error_of(publish);
    EXPECT_EQ(error.system_errno(), EBUSY);
    EXPECT_THAT(error.what(), HasSubstr("removed the hidden file or folder"));
  }
}

TEST(Replacement, ALostLeaseIsNoticedBeforeTheNewVersionIsPublished) {
  const TemporaryFolder folder;
  save_file(folder / "f", "old");
  save_folder(folder / "x", "old");
  {
    FileReplacement file(folder / "f", 0);
    FolderReplacement other(folder / "x", 0);
    test::take_over(folder / ".f.tenfold-0.lease");
    test::take_over(folder / ".x.tenfold-0.lease");
    for (const auto& publish : std::vector<std::function<void()>>{[&] { file.publish(false); },
                                                                  [&] { other.publish(false); }}) {
      const Error error = error_of(publish);
      EXPECT_EQ(error.system_errno(), EBUSY);
      EXPECT_THAT(error.what(), HasSubstr("not saved"));
    }
  }
  EXPECT_EQ(read_text(folder / "f"), "old");
  EXPECT_EQ(entries_of(folder / "x").size(), 1U);
  // The files that now belong to the other process are kept.
  EXPECT_EQ(entries_of(folder.path()), (Names{"f", ".f.tenfold-0", ".f.tenfold-0.lease", "x",
                                              ".x.tenfold-0", ".x.tenfold-0.lease"}));
}

TEST(OpenWriteThrough, ASaveNamesTheProcessThatHoldsTheFile) {
  const TemporaryFolder folder;
  save_file(folder / "x", "old");
  {
    const os::File held = open_write_through(folder / "x");
    const os::File held_too = open_write_through(folder / "x");
    const Error error =
        error_of([&] { FileReplacement replacement(folder / "x", 0, OldFile::exclusive); });
    EXPECT_EQ(error.system_errno(), EBUSY);
    EXPECT_THAT(error.what(), HasSubstr("the file is in use"));
    if (os::lock_holder(held.info())) {
      EXPECT_THAT(error.what(), HasSubstr("by process " + std::to_string(::getpid())));
    }
  }
  FileReplacement replacement(folder / "x", 0, OldFile::exclusive);
  EXPECT_EQ(error_of([&] { open_write_through(folder / "x"); }).system_errno(), EBUSY);
  replacement.publish(false);
  EXPECT_TRUE(open_write_through(folder / "x").valid());
}

TEST(OpenWriteThrough, AFileThatTheSaveCannotLockIsNotReplaced) {
  const TemporaryFolder folder;
  {
    FileReplacement replacement(folder / "x", 0, OldFile::exclusive);
    // Another process created the file and writes to it.
    write_text(folder / "x", "old");
    const os::File held = open_write_through(folder / "x");
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const Error error = error_of([&] { replacement.publish(false); });
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(error.system_errno(), EMFILE);
    EXPECT_EQ(error.path(), (folder / "x").string());
  }
  EXPECT_EQ(read_text(folder / "x"), "old");
}

TEST(FileReplacement, AFileThatThisUserMayNotOpenIsReplaced) {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  const int result = as_nobody([&] {
    save_file(folder / "x", "old");
    fs::permissions(folder / "x", fs::perms::none);
    FileReplacement replacement(folder / "x", 0, OldFile::exclusive);
    replacement.publish(false);
    return 0;
  });
  EXPECT_EQ(result, 0);
  EXPECT_EQ(os::file_info(folder / "x").mode, 0U);
  EXPECT_EQ(os::file_info(folder / "x").size_bytes, 0U);
}

TEST(RecoverFolder, RestoresTheFolderSetAsideByACrash) {
  const TemporaryFolder folder;
  save_folder(folder / "x", "old");
  fs::rename(folder / "x", folder / ".x.tenfold-old");
  EXPECT_TRUE(recover_folder(folder / "x"));
  EXPECT_EQ(read_text(folder / "x/x"), "old");
  EXPECT_FALSE(recover_folder(folder / "x"));
  EXPECT_FALSE(recover_folder(folder / "nothing"));
  EXPECT_FALSE(recover_folder(folder / "no/parent"));
}

TEST(RecoverFolder, DoesNotDisturbALiveWriter) {
  const TemporaryFolder folder;
  save_folder(folder / "x", "old");
  fs::rename(folder / "x", folder / ".x.tenfold-old");
  const auto held =
      os::Lease::try_acquire(os::Directory::open(folder.path()), ".x.tenfold-old.lease");
  ASSERT_TRUE(held);
  EXPECT_FALSE(recover_folder(folder / "x"));
  EXPECT_EQ(entries_of(folder.path()), (Names{".x.tenfold-old", ".x.tenfold-old.lease"}));
}

}  // namespace
}  // namespace tenfold
