#include "os/fs/file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include <tenfold/error.hpp>

#include "os/fs/change_observer.hpp"
#include "os/fs/directory.hpp"
#include "support/temporary_folder.hpp"
#include "support/watch_changes.hpp"

namespace tenfold::os {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;

void write_text(const Path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// The Error that `call` throws.
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

/// Some file systems, such as ext4 and XFS, support FALLOC_FL_INSERT_RANGE. On others, such as
/// tmpfs, insert_hole() returns false.
TEST(File, InsertsAHoleOrChangesNothing) {
  const TemporaryFolder folder;
  File file = File::create_at(Directory::open(folder.path()), "x");
  const auto block = static_cast<std::size_t>(file.block_bytes());
  const std::string text = std::string(block, 'a') + "end";
  file.write_at(0, bytes_of(text));
  EXPECT_FALSE(file.insert_hole(0, block + 1));  // not whole blocks
  EXPECT_FALSE(file.insert_hole(1, block));
  EXPECT_FALSE(file.insert_hole(4 * block, block));  // beyond the end
  EXPECT_FALSE(file.insert_hole(0, std::numeric_limits<std::uint64_t>::max()));
  EXPECT_EQ(file.read_all(text.size()), text);
  set_insert_supported(false);
  EXPECT_FALSE(file.insert_hole(0, block));
  set_insert_supported(true);
  EXPECT_EQ(file.read_all(text.size()), text);
  std::string expected = text;
  if (file.insert_hole(0, 2 * block)) expected.insert(0, 2 * block, '\0');
  if (file.insert_hole(block, block)) expected.insert(block, block, '\0');
  EXPECT_EQ(file.read_all(8 * block), expected);
}

TEST(File, RoundTripsBytes) {
  const TemporaryFolder folder;
  const Directory directory = Directory::open(folder.path());
  File file = File::create_at(directory, "x");
  file.write_at(3, bytes_of("world"));
  file.write_at(0, bytes_of("abc"));
  EXPECT_EQ(file.size_bytes(), 8U);
  EXPECT_EQ(File::open_read(folder / "x").read_all(8), "abcworld");
}

TEST(File, WritesManyPartsSequentially) {
  const TemporaryFolder folder;
  const Directory directory = Directory::open(folder.path());
  File file = File::create_at(directory, "x");
  // The counts include the maximum number of parts of one system call, and a larger number.
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{3}, File::kMaxParts, File::kMaxParts + 7}) {
    file.truncate(0);
    std::vector<std::string> texts;
    std::string all = ".....";
    for (std::size_t i = 0; i < count; ++i) {
      texts.push_back(i % 5 == 0 ? "" : std::to_string(i));
      all += texts.back();
    }
    file.write_at(0, bytes_of("....."));
    std::vector<std::span<const std::byte>> parts;
    for (const std::string& text : texts) parts.push_back(bytes_of(text));
    file.write_at(5, parts);
    EXPECT_EQ(file.read_all(1U << 20), all);
  }
}

TEST(File, ReadPastTheEndNamesBothSizes) {
  const TemporaryFolder folder;
  write_text(folder / "x", "abcd");
  const File file = File::open_read(folder / "x");
  std::vector<std::byte> into(4);
  const Error error = error_of([&] { file.read_at(2, into); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_EQ(error.what(), (folder / "x").string() +
                              ": the file is too short: expected at least 6 bytes, found 4; it may "
                              "be truncated");
}

TEST(File, ReadSomeStopsAtTheEnd) {
  const TemporaryFolder folder;
  write_text(folder / "x", "abcd");
  const File file = File::open_read(folder / "x");
  std::vector<std::byte> into(4);
  EXPECT_EQ(file.read_some_at(2, into), 2U);
  EXPECT_EQ(file.read_some_at(4, into), 0U);
  EXPECT_EQ(file.read_some_at(std::numeric_limits<std::uint64_t>::max(), into), 0U);
}

TEST(File, EmptyReadAtTheEndIsAccepted) {
  const TemporaryFolder folder;
  write_text(folder / "x", "");
  const File file = File::open_read(folder / "x");
  file.read_at(0, {});
  EXPECT_EQ(file.read_all(0), "");
}

TEST(File, AnOffsetThatOverflowsIsAnErrorAndNotAWrappedRead) {
  const TemporaryFolder folder;
  write_text(folder / "x", "abcd");
  const File file = File::open_read(folder / "x");
  std::vector<std::byte> into(8);
  const std::map<std::uint64_t, std::string> ends = {
      {std::numeric_limits<std::uint64_t>::max() - 3, "2^64"},
      {std::numeric_limits<std::int64_t>::max() - 3, "9223372036854775812"}};
  for (const auto& [offset_bytes, end] : ends) {
    const Error error = error_of([&, at = offset_bytes] { file.read_at(at, into); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("expected at least " + end + " bytes, found 4"));
  }
}

TEST(File, WriteBeyondTheLargestOffsetIsAnIoError) {
  const TemporaryFolder folder;
  const Directory directory = Directory::open(folder.path());
  File file = File::create_at(directory, "x");
  const Error error = error_of(
      [&] { file.write_at(std::numeric_limits<std::uint64_t>::max() - 1, bytes_of("abc")); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_EQ(error.system_errno(), EFBIG);
}

TEST(File, MissingFileIsFileNotFound) {
  const TemporaryFolder folder;
  const Error error = error_of([&] { File::open_read(folder / "x"); });
  EXPECT_EQ(error.code(), ErrorCode::file_not_found);
  EXPECT_EQ(error.what(),
            (folder / "x").string() + ": cannot be opened: no such file or directory");
  const Directory directory = Directory::open(folder.path());
  EXPECT_EQ(error_of([&] { File::open_read_at(directory, "x"); }).code(),
            ErrorCode::file_not_found);
  EXPECT_FALSE(File::try_open_read_at(directory, "x").valid());
}

TEST(File, AFifoIsRefusedWithoutWaitingForItsOtherEnd) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "x").c_str(), 0600), 0);
  const Error error = error_of([&] { File::open_read(folder / "x"); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_EQ(error.what(), (folder / "x").string() + ": expected a regular file, found a FIFO");
  EXPECT_EQ(error_of([&] { File::open_read_write(folder / "x"); }).code(), ErrorCode::corrupt);
}

TEST(File, ADirectoryASocketAndADeviceAreRefused) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "x");
  EXPECT_THAT(error_of([&] { File::open_read(folder / "x"); }).what(),
              HasSubstr("expected a regular file, found a folder"));
  EXPECT_THAT(error_of([&] { File::open_read_write(folder / "x"); }).what(),
              HasSubstr("expected a regular file, found a folder"));
  EXPECT_THAT(error_of([&] { File::open_read("/dev/null"); }).what(),
              HasSubstr("expected a regular file, found a device"));

  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder / "s").string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(error_of([&] { File::open_read(folder / "s"); }).code(), ErrorCode::corrupt);
  ::close(socket);
}

TEST(File, ASymlinkIsRefusedInAnOpenedFolderButFollowedInAPath) {
  const TemporaryFolder folder;
  write_text(folder / "real", "abc");
  std::filesystem::create_symlink("real", folder / "x");
  const Directory directory = Directory::open(folder.path());
  for (const auto& open : {File::open_read_at, File::open_read_write_at, File::try_open_read_at}) {
    const Error error = error_of([&] { open(directory, "x"); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("expected a regular file, found a symbolic link"));
  }
  EXPECT_EQ(File::open_read(folder / "x").read_all(3), "abc");
}

TEST(File, EntryNamesAreOnePathComponent) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "sub");
  write_text(folder / "sub/x", "abc");
  const Directory directory = Directory::open(folder.path());
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("sub/x"),
        std::string("/etc/passwd"), std::string("x\0y", 3)}) {
    EXPECT_EQ(error_of([&] { File::open_read_at(directory, name); }).code(),
              ErrorCode::invalid_argument)
        << name;
    EXPECT_EQ(error_of([&] { File::create_at(directory, name); }).code(),
              ErrorCode::invalid_argument)
        << name;
  }
}

TEST(File, CreateRefusesAnExistingFile) {
  const TemporaryFolder folder;
  write_text(folder / "x", "abc");
  const Directory directory = Directory::open(folder.path());
  const Error error = error_of([&] { File::create_at(directory, "x"); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_EQ(error.system_errno(), EEXIST);
  EXPECT_EQ(error.path(), (folder / "x").string());
}

TEST(File, ReadAllRefusesMoreThanTheLimitBeforeItAllocates) {
  const TemporaryFolder folder;
  write_text(folder / "x", "");
  std::filesystem::resize_file(folder / "x", std::uintmax_t{1} << 40);
  const File file = File::open_read(folder / "x");
  const Error error = error_of([&] { file.read_all(100); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt);
  EXPECT_THAT(error.what(), HasSubstr("expected at most 100 bytes, found 1099511627776"));
}

TEST(File, AFailedWriteReportsErrnoAndPath) {
  const TemporaryFolder folder;
  const Directory directory = Directory::open(folder.path());
  File file = File::create_at(directory, "x");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  // The kernel writes only the first 4 bytes. This short write must not be reported as complete.
  const Error error = error_of([&] { file.write_at(0, bytes_of("abcdefgh")); });
  file.truncate(0);
  const std::vector<std::string> texts = {"ab", "cdef", "gh"};
  std::vector<std::span<const std::byte>> parts;
  for (const std::string& text : texts) parts.push_back(bytes_of(text));
  const Error of_parts = error_of([&] { file.write_at(0, parts); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_EQ(error.system_errno(), EFBIG);
  EXPECT_EQ(error.path(), (folder / "x").string());
  EXPECT_EQ(std::string(of_parts.what()), error.what());
  EXPECT_EQ(file.read_all(10), "abcd");
}

TEST(File, TruncateShortensAndExtendsWithZeros) {
  const TemporaryFolder folder;
  const Directory directory = Directory::open(folder.path());
  File file = File::create_at(directory, "x");
  file.write_at(0, bytes_of("abcd"));
  file.truncate(2);
  file.truncate(5);
  EXPECT_EQ(file.read_all(10), std::string("ab\0\0\0", 5));
  file.start_writeback();
  file.sync();
}

TEST(File, CopiesPermissionBits) {
  const TemporaryFolder folder;
  const Directory directory = Directory::open(folder.path());
  File like = File::create_at(directory, "like", 0640);
  ASSERT_EQ(::chmod((folder / "like").c_str(), 0461), 0);
  File file = File::create_at(directory, "x");
  file.copy_permissions(like.info());
  EXPECT_EQ(file.info().mode, 0461U);
}

TEST(File, ANewFileFollowsTheUmask) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(027);
  const Directory directory = Directory::open(folder.path());
  EXPECT_EQ(File::create_at(directory, "x").info().mode, 0640U);
  ::umask(before);
}

TEST(File, LocksExcludeOtherOpenFilesAndEndWithTheFile) {
  const TemporaryFolder folder;
  write_text(folder / "x", "");
  File a = File::open_read(folder / "x");
  File b = File::open_read(folder / "x");
  EXPECT_EQ(a.try_lock_shared(), LockResult::acquired);
  EXPECT_EQ(b.try_lock_shared(), LockResult::acquired);
  EXPECT_EQ(b.try_lock_exclusive(), LockResult::held);
  a.close();
  EXPECT_EQ(b.try_lock_exclusive(), LockResult::acquired);
}

TEST(File, AFileSystemWithoutLocksIsNotReportedAsAFreeLock) {
  const TemporaryFolder folder;
  write_text(folder / "x", "");
  File file = File::open_read(folder / "x");
  for (const int code : {EBADF, ENOSYS, ENOLCK, EOPNOTSUPP}) {
    const test::FailLocks fail(code);
    EXPECT_EQ(file.try_lock_exclusive(), LockResult::unsupported);
    EXPECT_EQ(file.try_lock_shared(), LockResult::unsupported);
  }
  const test::FailLocks fail(EWOULDBLOCK);
  EXPECT_EQ(file.try_lock_exclusive(), LockResult::held);
}

TEST(File, AnErrorOfTheLastCloseIsReported) {
  const TemporaryFolder folder;
  write_text(folder / "x", "");
  File file = File::open_read_write(folder / "x");
  const test::FailCloses fail([] { return EDQUOT; });
  EXPECT_EQ(error_of([&] { file.close_written(); }).system_errno(), EDQUOT);
  EXPECT_FALSE(file.valid());
}

TEST(File, AForkedChildNeitherKeepsNorReleasesAnExclusiveLock) {
  const TemporaryFolder folder;
  write_text(folder / "x", "");
  File other = File::open_read(folder / "x");
  File file = File::open_read(folder / "x");
  ASSERT_EQ(file.try_lock_exclusive(), LockResult::acquired);
  const pid_t closes = ::fork();
  if (closes == 0) {
    file.close();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(closes, nullptr, 0), closes);
  EXPECT_EQ(other.try_lock_exclusive(), LockResult::held);
  const pid_t keeps = ::fork();
  if (keeps == 0) {
    ::pause();
    ::_exit(0);
  }
  file.close();
  EXPECT_EQ(other.try_lock_exclusive(), LockResult::acquired);
  ::kill(keeps, SIGKILL);
  ASSERT_EQ(::waitpid(keeps, nullptr, 0), keeps);
}

TEST(File, MovingTransfersTheDescriptor) {
  const TemporaryFolder folder;
  write_text(folder / "x", "abc");
  File a = File::open_read(folder / "x");
  const int fd = a.fd();
  File b = std::move(a);
  EXPECT_FALSE(a.valid());  // NOLINT(bugprone-use-after-move): this is tested
  EXPECT_EQ(b.fd(), fd);
  File& same = b;
  b = std::move(same);
  EXPECT_EQ(b.read_all(3), "abc");
}

TEST(File, InfoDistinguishesFiles) {
  const TemporaryFolder folder;
  write_text(folder / "x", "abc");
  write_text(folder / "y", "abc");
  std::filesystem::create_hard_link(folder / "x", folder / "z");
  EXPECT_FALSE(file_info(folder / "x").same_file(file_info(folder / "y")));
  EXPECT_TRUE(file_info(folder / "x").same_file(file_info(folder / "z")));
  EXPECT_EQ(file_info(folder / "x").num_links, 2U);
  EXPECT_EQ(file_info(folder / "x").size_bytes, 3U);
  EXPECT_TRUE(file_info(folder.path()).is_directory);
}

TEST(File, ATimeThatDoesNotFitDoesNotOverflow) {
  const TemporaryFolder folder;
  write_text(folder / "x", "abc");
  constexpr time_t kIn2300 = 10'413'792'000;
  const timespec times[2] = {{kIn2300, 0}, {kIn2300, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (folder / "x").c_str(), times, 0), 0);
  EXPECT_GT(file_info(folder / "x").modified_ns, 0);  // also if the file system clamps the time
}

TEST(Path, ExistsIsTrueForADanglingSymlinkThatResolveLinkFollows) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("nowhere", folder / "x");
  std::filesystem::create_symlink("x", folder / "y");
  EXPECT_TRUE(os::exists(folder / "x"));
  EXPECT_FALSE(os::exists(folder / "nowhere"));
  EXPECT_FALSE(os::exists(folder / "nowhere/else"));
  EXPECT_EQ(resolve_link(folder / "y"), folder / "nowhere");
  EXPECT_EQ(resolve_link(folder / "plain"), folder / "plain");
}

TEST(Path, ResolveLinkRemovesTrailingSlashes) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "target");
  std::filesystem::create_symlink("target/", folder / "x");
  std::filesystem::create_symlink("nowhere", folder / "y");
  EXPECT_EQ(resolve_link(folder / "x/"), folder / "target");
  EXPECT_EQ(resolve_link(folder / "y//"), folder / "nowhere");
  EXPECT_EQ(resolve_link(folder / "plain/"), folder / "plain");
  EXPECT_EQ(resolve_link("/"), Path("/"));
}

TEST(Path, PathWithinFollowsLinksAndAcceptsMissingPaths) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "a" / "b");
  std::filesystem::create_symlink("a", folder / "link");
  std::filesystem::create_symlink("a/b/new", folder / "dangling");
  EXPECT_EQ(path_within(folder / "a", folder / "link" / "b"), "b");
  EXPECT_EQ(path_within(folder / "link", folder / "a"), ".");
  EXPECT_EQ(path_within(folder / "a", folder / "dangling"), "b/new");
  EXPECT_EQ(path_within(folder / "a", folder / "ab"), "");
  EXPECT_EQ(path_within(folder / "a", folder.path()), "");
  EXPECT_EQ(path_within(std::filesystem::current_path(), "no-such-file/x"), "no-such-file/x");
}

TEST(Path, ASymlinkLoopIsAnIoError) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("b", folder / "a");
  std::filesystem::create_symlink("a", folder / "b");
  EXPECT_EQ(error_of([&] { resolve_link(folder / "a"); }).system_errno(), ELOOP);
}

/// Changes the working directory while it exists.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const Path& path) { std::filesystem::current_path(path); }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;
  ~WorkingDirectory() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }

 private:
  Path before_ = std::filesystem::current_path();
};

TEST(Path, AbsoluteAndCanonicalBeginAtTheWorkingDirectory) {
  const TemporaryFolder folder;
  const Path root = std::filesystem::canonical(folder.path());
  std::filesystem::create_directory(folder / "a");
  std::filesystem::create_symlink("a", folder / "x");
  const WorkingDirectory inside(root);
  EXPECT_EQ(os::absolute("x/b"), root / "x/b");
  EXPECT_EQ(os::canonical("x/b"), root / "a/b");
  EXPECT_EQ(os::canonical("new/../b"), root / "b");
  EXPECT_EQ(os::canonical("x"), root / "a");
}

TEST(Path, ARemovedWorkingDirectoryIsAnIoError) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "gone");
  const WorkingDirectory inside(folder / "gone");
  std::filesystem::remove(folder / "gone");
  EXPECT_EQ(os::absolute("/x"), Path("/x"));
  for (const auto& resolve : {os::absolute, os::canonical}) {
    const Error error = error_of([&] { resolve("x"); });
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_EQ(error.system_errno(), ENOENT);
  }
}

TEST(Path, ResolveLinkThrowsIfALinkCannotBeDetected) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_EQ(error_of([&] { resolve_link(folder / "loop/x"); }).system_errno(), ELOOP);
  write_text(folder / "file", "abc");
  // A file has no entries (ENOTDIR), so there is no link.
  EXPECT_EQ(resolve_link(folder / "file/x"), folder / "file/x");
}

}  // namespace
}  // namespace tenfold::os
