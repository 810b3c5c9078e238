#include "os/fs/free_space.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <limits>
#include <string>

#include <tenfold/error.hpp>

#include "os/fs/directory.hpp"
#include "os/system.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::os {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(FreeSpace, ExcessiveSizesAreRefusedWithPathAndBytes) {
  const test::TemporaryFolder root;
  const Directory folder = Directory::open(root.path());
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t needed : {std::uint64_t{1} << 62U, kMost}) {
    try {
      require_free_space(folder.fd(), "run/step_3", needed);
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.system_errno(), ENOSPC);
      EXPECT_EQ(error.path(), "run/step_3");
      EXPECT_THAT(error.what(), HasSubstr("run/step_3: no space left on device: expected "));
      EXPECT_THAT(error.what(), HasSubstr(needed == kMost ? "more than 2^64 bytes free, found "
                                                          : "4611686018427387904 bytes free"));
    }
  }
}

TEST(FreeSpace, SmallWritesAreNotChecked) {
  EXPECT_NO_THROW(require_free_space(-1, "x", 0));
  EXPECT_NO_THROW(require_free_space(-1, "x", kUncheckedBytes));
}

TEST(FreeSpace, AFileSystemWithoutASpaceReportAcceptsAnySize) {
  EXPECT_NO_THROW(require_free_space(-1, "x", std::uint64_t{1} << 62U));
  const Directory processes = Directory::open("/proc");  // a file system of 0 blocks
  EXPECT_NO_THROW(require_free_space(processes.fd(), "x", std::uint64_t{1} << 62U));
}

std::string message_of_full_disk(const Directory& folder) {
  try {
    throw_system_error(ENOSPC, "x", "cannot be written", folder.fd());
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(FreeSpace, MessagesOmitTheFreeFilesOfAFileSystemWithoutALimit) {
  EXPECT_THAT(message_of_full_disk(Directory::open("/proc")), EndsWith("found 0 bytes free"));
  const test::TemporaryFolder root;
  const Directory folder = Directory::open(root.path());
  const bool has_limit = free_space(folder.fd()).free_files.has_value();
  EXPECT_EQ(message_of_full_disk(folder).ends_with(" files free"), has_limit);
}

TEST(FreeSpace, SizesWithinTheFreeSpaceAreAccepted) {
  const test::TemporaryFolder root;
  const Directory folder = Directory::open(root.path());
  const FreeSpace space = free_space(folder.fd());
  EXPECT_GT(space.free_bytes, 0U);
  // Only half of the free space is required, because other processes may concurrently use a part.
  EXPECT_NO_THROW(require_free_space(folder.fd(), "x", space.free_bytes / 2));
}

}  // namespace
}  // namespace tenfold::os
