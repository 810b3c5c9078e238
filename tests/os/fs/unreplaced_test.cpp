#include "os/fs/unreplaced.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include <tenfold/error.hpp>

#include "support/temporary_folder.hpp"

namespace tenfold::os {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// Replaces `path` by another file.
void replace(const fs::path& path, const std::string& text) {
  const fs::path other = path.string() + ".new";
  write_text(other, text);
  fs::rename(other, path);
}

TEST(NamedEntry, IsCurrentUntilThePathNamesAnotherFile) {
  const test::TemporaryFolder folder;
  write_text(folder / "x", "1");
  const NamedEntry entry(folder / "x");
  EXPECT_TRUE(entry.is_current());
  write_text(folder / "x", "2");  // writes into the same file
  EXPECT_TRUE(entry.is_current());
  replace(folder / "x", "3");
  EXPECT_FALSE(entry.is_current());
}

TEST(NamedEntry, DetectsAReplacementWithAReusedInodeNumber) {
  const test::TemporaryFolder folder;
  for (int i = 0; i < 100; ++i) {
    write_text(folder / "x", "old");
    const NamedEntry entry(folder / "x");
    fs::remove(folder / "x");
    write_text(folder / "x", "new");
    EXPECT_FALSE(entry.is_current());
  }
}

TEST(NamedEntry, IsCurrentForAMissingPathUntilThePathExists) {
  const test::TemporaryFolder folder;
  const NamedEntry entry(folder / "x");
  const NamedEntry below_a_file(folder / "x" / "y");
  EXPECT_TRUE(entry.is_current());
  write_text(folder / "x", "1");
  EXPECT_FALSE(entry.is_current());
  EXPECT_TRUE(below_a_file.is_current());
}

TEST(NamedEntry, FollowsSymlinks) {
  const test::TemporaryFolder folder;
  write_text(folder / "a", "1");
  write_text(folder / "b", "2");
  fs::create_symlink("a", folder / "link");
  const NamedEntry entry(folder / "link");
  EXPECT_TRUE(entry.is_current());
  fs::remove(folder / "link");
  fs::create_symlink("b", folder / "link");
  EXPECT_FALSE(entry.is_current());
}

TEST(ReadUnreplaced, RetriesIfTheFileWasReplacedEvenWithoutAnError) {
  const test::TemporaryFolder folder;
  write_text(folder / "x", "old");
  int num_reads = 0;
  const std::string text = read_unreplaced(folder / "x", [&] {
    std::string found = text_of(folder / "x");
    if (++num_reads == 1) replace(folder / "x", "new");
    return found;
  });
  EXPECT_EQ(text, "new");
  EXPECT_EQ(num_reads, 2);
}

TEST(ReadUnreplaced, RetriesAfterAnErrorOfAReplacedFile) {
  const test::TemporaryFolder folder;
  write_text(folder / "x", "old");
  int num_reads = 0;
  const std::string text = read_unreplaced(folder / "x", [&] {
    if (++num_reads == 1) {
      replace(folder / "x", "new");
      throw Error(ErrorCode::corrupt, "a part is missing");
    }
    if (num_reads == 2) throw Error::io(ESTALE, "x", "replaced since it was opened");
    return text_of(folder / "x");
  });
  EXPECT_EQ(text, "new");
  EXPECT_EQ(num_reads, 3);
}

TEST(ReadUnreplaced, ThrowsErrorsOfAnUnchangedFileImmediately) {
  const test::TemporaryFolder folder;
  write_text(folder / "x", "old");
  int num_reads = 0;
  const auto read = [&]() -> int {
    ++num_reads;
    throw Error(ErrorCode::corrupt, "damaged");
  };
  EXPECT_THROW(read_unreplaced(folder / "x", read), Error);
  EXPECT_THROW(read_unreplaced(folder / "absent", read), Error);
  EXPECT_EQ(num_reads, 2);
}

TEST(ReadUnreplaced, EndsWithEstaleIfTheFileIsAlwaysReplaced) {
  const test::TemporaryFolder folder;
  write_text(folder / "x", "0");
  int num_reads = 0;
  try {
    read_unreplaced(folder / "x", [&] {
      replace(folder / "x", std::to_string(++num_reads));
      return num_reads;
    });
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.system_errno(), ESTALE);
    EXPECT_THAT(error.what(), testing::HasSubstr("x: it was replaced 100 times while it was read"));
  }
  EXPECT_EQ(num_reads, kMaxReads);
}

}  // namespace
}  // namespace tenfold::os
