#include "formats/shared/folder_checksums.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>

#include "base/hash/checksum.hpp"

namespace tenfold::detail::formats {
namespace {

using testing::HasSubstr;

/// Appends the last line, which is the valid checksum of the other lines.
std::string sealed(const std::string& lines) {
  return lines + "xxh3 " + base::hex16(base::xxh3(std::as_bytes(std::span(lines)))) + "\n";
}

/// Parses the text. Returns the error message, or "" if there is none.
std::string complaint(const std::string& text) {
  try {
    parse_checksums(text, "%checksums");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt) << text;
    return error.what();
  }
  return "";
}

constexpr std::string_view kSum = "0123456789abcdef ";

TEST(FolderChecksums, AreReadAsTheyWereWritten) {
  std::vector<ChecksumLine> lines = {{1, 0, 24, "w.memmap"}, {~std::uint64_t{0}, 24, 8, "a b/c"}};
  lines.push_back(line_of_box(7, *byte_box({4, 12}, {0, 4}, {4, 8}), "x.memmap"));
  const std::string text = checksums_text(lines);
  EXPECT_THAT(text, HasSubstr("0000000000000007 box 4,12 0,4 4,8 x.memmap\n"));
  const std::vector<ChecksumLine> found = parse_checksums(text, "%checksums");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[1].checksum, ~std::uint64_t{0});
  EXPECT_EQ(found[1].path, "a b/c");
  ASSERT_NE(found[2].box, nullptr);
  EXPECT_EQ(checksums_text(found), text);
  EXPECT_TRUE(parse_checksums(sealed(""), "%checksums").empty());
}

TEST(FolderChecksums, AnInvalidLineIsNamed) {
  for (const std::string line :
       {"", "0", "0123456789abcdef 0 1", "0123456789abcde 0 1 w", "0123456789abcdeg 0 1 w",
        "0123456789abcdef -1 1 w", "0123456789abcdef 0 1x w", "0123456789abcdef  1 w",
        "0123456789abcdef 18446744073709551616 1 w", "0123456789abcdef 18446744073709551615 1 w",
        "0123456789abcdef 0 1 ", "0123456789abcdef 0 1 /w", "0123456789abcdef 0 1 ../w",
        "0123456789abcdef 0 1 a/../w", "0123456789abcdef 0 1 ./w", "0123456789abcdef 0 1 a//w",
        "0123456789abcdef 0 1 w/"}) {
    EXPECT_THAT(complaint(sealed(std::string(kSum) + "0 1 good\n" + line + "\n")),
                HasSubstr("%checksums: line 2: expected \"<checksum> <offset> <length> <path>\""))
        << line;
  }
  using namespace std::string_literals;
  EXPECT_NE(complaint(sealed(std::string(kSum) + "0 1 a\0b\n"s)), "");
}

TEST(FolderChecksums, ABoxMustLieWithinItsShapeAndFolder) {
  const std::string begin = std::string(kSum) + "box ";
  EXPECT_EQ(complaint(sealed(begin + "4,12 0,4 4,8 w\n")), "");
  for (const std::string rest :
       {"4,12 0,4 4,8", "4,12 0,4 4,9 w", "4,12 0,13 4,1 w", "4,12 0,4 4,0 w", "4 0,4 4,8 w",
        "4,12 0 4,8 w", "4,12 0,4 4 w", "4,x 0,4 4,8 w", "4, 0,4 4,8 w", " 0 1 w",
        "18446744073709551615,2 0,0 1,1 w", "9223372036854775808,2 0,0 1,1 w", "4,12 0,4 4,8 ../w",
        "4,12 18446744073709551615,4 2,8 w"}) {
    EXPECT_THAT(complaint(sealed(begin + rest + "\n")),
                HasSubstr("%checksums: line 1: expected \"<checksum> box <shape> <offsets>"))
        << rest;
  }
  EXPECT_NE(complaint(sealed("0123456789abcde box 4,12 0,4 4,8 w\n")), "");
}

TEST(FolderChecksums, TheLastLineCoversTheOthers) {
  const std::string text = sealed(std::string(kSum) + "0 1 w\n");
  EXPECT_EQ(complaint(text), "");
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] ^= 1;
    EXPECT_NE(complaint(damaged), "") << at;
    EXPECT_NE(complaint(text.substr(0, at)), "") << at;
  }
  EXPECT_THAT(complaint(text + "more\n"),
              HasSubstr("last line: expected the checksum of the lines before, found another"));
}

TEST(FolderChecksums, DisabledLinesAreNotChecksums) {
  std::string text = sealed(std::string(kSum) + "0 1 w\n" + std::string(kSum) + "0 1 v\n");
  const std::size_t size = text.size();
  EXPECT_FALSE(silence_lines(text, "f", [](std::string_view) { return false; }));
  EXPECT_TRUE(silence_lines(text, "f", [](std::string_view path) { return path == "w"; }));
  EXPECT_EQ(text.size(), size);
  const std::vector<ChecksumLine> left = parse_checksums(text, "f");
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left[0].path, "v");
  EXPECT_FALSE(silence_lines(text, "f", [](std::string_view path) { return path == "w"; }));
}

}  // namespace
}  // namespace tenfold::detail::formats
