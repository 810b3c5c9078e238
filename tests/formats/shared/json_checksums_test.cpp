#include "formats/shared/json_checksums.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenfold::detail::formats {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr std::size_t kNone = std::string::npos;
const std::string kZeros(16, '0');

TEST(JsonChecksums, FindsTheMemberAndNoStringThatLooksLikeIt) {
  const std::string member = R"("tenfold_xxh3": ")" + kZeros + "\"";
  const auto digits_in = [](const std::string& json) { return find_checksums(json); };
  EXPECT_EQ(digits_in("{" + member + "}"), 18U);
  EXPECT_EQ(digits_in(R"({"tenfold_xxh3":")" + kZeros + "\"}"), 17U) << "no space before the value";
  // A string that contains the name, an escaped quote, and a longer name come before the member.
  const std::string others = R"({"a": "tenfold_xxh3", "b": "\"tenfold_xxh3\": 1", )"
                             R"("my_tenfold_xxh3": 1, )";
  EXPECT_EQ(digits_in(others + member + "}"), others.size() + 17);
  EXPECT_EQ(digits_in(others + "\"c\": 1}"), kNone);
  EXPECT_EQ(digits_in(R"({"tenfold_xxh3": 1234567890123456})"), kNone) << "no string";
  EXPECT_EQ(digits_in(R"({"tenfold_xxh3": "012345678901234)"), kNone) << "the text ends";
  EXPECT_EQ(digits_in("tenfold_xxh3\": \"" + kZeros), kNone) << "the text begins with the name";
}

TEST(JsonChecksums, FindsTheFirstOrTheLastOfTwoMembers) {
  const std::string member = R"("tenfold_xxh3": ")" + kZeros + "\"";
  const std::string two = "{" + member + ", " + member + "}";
  EXPECT_EQ(find_checksums(two), 18U);
  EXPECT_EQ(find_last_checksums(two), 18U + member.size() + 2);
  EXPECT_EQ(find_last_checksums("{" + member + R"(, "a": "tenfold_xxh3"})"), 18U);
  EXPECT_EQ(find_last_checksums("{}"), kNone);
}

TEST(JsonChecksums, ParsesOneSpellingOfANumber) {
  EXPECT_EQ(parse_hex16("00000000000000ff"), 255U);
  for (const char* digits : {"", "ff", "00000000000000FF", "000000000000000ff", "00000000000000fg",
                             "+0000000000000ff", "0x000000000000ff"}) {
    EXPECT_EQ(parse_hex16(digits), std::nullopt) << digits;
  }
}

/// A document with the filled-in checksums of some blocks.
std::string document_with(const std::vector<std::uint64_t>& blocks) {
  std::string document = R"({"tenfold_xxh3": ")" + blank_checksum_text(blocks.size()) + "\"}";
  fill_checksums(document, find_checksums(document), blocks);
  return document;
}

ChecksummedDocument checksummed(const std::string& document, const std::string& text,
                                std::uint64_t num_blocks) {
  return {"f", "member", "header", 8, document, text, find_checksums(document), num_blocks};
}

TEST(JsonChecksums, ReturnsTheChecksumsOfTheBlocks) {
  const std::string document = document_with({1, 0xABCDEF});
  const std::string text = document.substr(18, blank_checksum_text(2).size());
  VerifyReport report;
  const auto blocks = check_document(checksummed(document, text, 2), report);
  ASSERT_TRUE(blocks);
  EXPECT_THAT(*blocks, ElementsAre(1U, 0xABCDEFU));
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(report.num_checksums, 3U);
  EXPECT_EQ(blank_checksum_text(0), kZeros) << "only the checksum of the header";
}

TEST(JsonChecksums, ReportsAStringThatIsTooShortForTheBlocks) {
  const std::string document = document_with({1});
  const std::string text = document.substr(18, blank_checksum_text(1).size());
  VerifyReport report;
  EXPECT_EQ(check_document(checksummed(document, text, 2), report), std::nullopt);
  ASSERT_THAT(report.problems, SizeIs(1));
  EXPECT_EQ(report.problems[0].path, "f");
  EXPECT_EQ(report.problems[0].part, "member");
  EXPECT_EQ(report.problems[0].what,
            "does not fit the tensors: expected 49 characters, found 33; another tool may have "
            "changed the file");
  EXPECT_EQ(report.num_checksums, 0U);
  // A sparse file may have so many blocks that their digits do not fit in memory.
  EXPECT_EQ(check_document(checksummed(document, text, std::uint64_t{1} << 39), report),
            std::nullopt);
  ASSERT_THAT(report.problems, SizeIs(2));
  EXPECT_EQ(report.problems[1].expected, "8796093022225 characters");
}

TEST(JsonChecksums, ReportsDigitsThatCannotBeReadAndAnotherHash) {
  std::string document = document_with({});
  const auto problem = [](const std::string& changed) {
    VerifyReport report;
    check_document_hash(checksummed(changed, changed.substr(18, 16), 0), report);
    EXPECT_THAT(report.problems, SizeIs(1));
    return report.problems.empty() ? "" : report.problems[0].part + ": " + report.problems[0].what;
  };
  const std::string digits = document.substr(18, 16);
  std::string upper = document;
  upper[18] = 'F';
  EXPECT_EQ(problem(upper),
            "member: cannot be read: expected hexadecimal digits as tenfold writes them, found "
            "other characters; another tool may have changed the file");
  document.insert(document.size() - 1, " ");
  EXPECT_THAT(
      problem(document),
      testing::StartsWith("header: the checksum of 37 bytes at offset 8 differs: expected " +
                          digits + ", found "));
}

}  // namespace
}  // namespace tenfold::detail::formats
