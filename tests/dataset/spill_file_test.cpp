#include "dataset/spill_file.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include <tenfold/error.hpp>

#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

/// Sets TMPDIR, and restores its value at the end.
class TemporaryDirectoryVariable {
 public:
  explicit TemporaryDirectoryVariable(const Path& path) {
    if (const char* old = std::getenv("TMPDIR")) old_ = old;
    ::setenv("TMPDIR", path.c_str(), 1);
  }
  ~TemporaryDirectoryVariable() {
    if (old_) {
      ::setenv("TMPDIR", old_->c_str(), 1);
    } else {
      ::unsetenv("TMPDIR");
    }
  }
  TemporaryDirectoryVariable(const TemporaryDirectoryVariable&) = delete;
  TemporaryDirectoryVariable& operator=(const TemporaryDirectoryVariable&) = delete;

 private:
  std::optional<std::string> old_;
};

TEST(SpillFile, AMissingFolderForTemporaryFilesIsNamedByItsVariable) {
  const test::TemporaryFolder folder;
  const TemporaryDirectoryVariable variable(folder / "none");
  SpillFile spill(Path(), 4);
  spill.append(std::array<std::byte, 4>{});
  try {
    spill.append(std::array<std::byte, 4>{});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_EQ(error.part(), "TMPDIR");
    EXPECT_NE(error.system_errno(), 0);
  }
}

TEST(SpillFile, LeavesNoFileInItsFolder) {
  const test::TemporaryFolder folder;
  SpillFile spill(folder.path(), 4);
  const std::array<std::byte, 6> bytes = {std::byte{1}, std::byte{2}, std::byte{3},
                                          std::byte{4}, std::byte{5}, std::byte{6}};
  spill.append(bytes);
  std::array<std::byte, 6> read{};
  spill.read(0, read);
  EXPECT_EQ(read, bytes);
  EXPECT_FALSE(spill.in_memory());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace tenfold
