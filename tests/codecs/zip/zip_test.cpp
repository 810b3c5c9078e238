#include "codecs/zip/zip.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "codecs/zip/entry_start.hpp"
#include "support/message_of.hpp"

namespace tenfold::codecs {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(TENFOLD_TEST_DATA) / "zip";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file.good()) << path;
  return text.str();
}

/// Reads from `text`, and fails the test if bytes outside of it are requested.
ZipInput input_of(const std::string& text) {
  ZipInput input = zip_input("x.zip", std::as_bytes(std::span(text)));
  input.read = [read = input.read, size = text.size()](std::uint64_t offset,
                                                       std::span<std::byte> into) {
    ASSERT_TRUE(base::range_fits(offset, into.size(), size));
    read(offset, into);
  };
  return input;
}

/// Returns limits that refuse deflated entries of two megabytes as a zip bomb.
ZipLimits small_limits() {
  ZipLimits limits;
  limits.max_inflated_bytes = 1'500'000;
  return limits;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Returns the content of every entry by its name.
std::map<std::string, std::string> contents(const std::string& archive) {
  const ZipInput input = input_of(archive);
  std::map<std::string, std::string> found;
  for (const ZipEntry& entry : read_zip_directory(input, small_limits()).entries) {
    check_zip_entry(input, entry);
    found[entry.name] = text_of(read_zip_entry(input, entry));
  }
  return found;
}

/// Reads every entry. Returns "<code>: <message>" of the error without the name of the archive, or
/// "" if there is none.
std::string complaint(const std::string& archive) {
  try {
    contents(archive);
  } catch (const Error& error) {
    const std::string kind = error.code() == ErrorCode::corrupt       ? "corrupt"
                             : error.code() == ErrorCode::unsupported ? "unsupported"
                                                                      : "another code";
    std::string text = error.what();
    EXPECT_TRUE(text.starts_with("x.zip: ")) << text;
    return kind + text.substr(5);
  }
  return "";
}

std::vector<std::string> files(const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(kFolder)) {
    const std::string name = file.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".zip")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Zip, EntriesEqualThoseReadByPython) {
  std::string found;
  for (const std::string& name : files("ok-")) {
    const std::string archive = read_file(kFolder / name);
    const ZipInput input = input_of(archive);
    for (const ZipEntry& entry : read_zip_directory(input, small_limits()).entries) {
      std::string hex;
      for (const std::byte byte : read_zip_entry(input, entry)) {
        hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
      }
      check_zip_entry(input, entry);
      found += fmt::format("{}\t{}\t{}\t{}\t{:08x}\t{}\n", name, entry.name,
                           entry.method == ZipMethod::stored ? 0 : 8, entry.size_bytes, entry.crc32,
                           hex);
    }
  }
  EXPECT_EQ(found, read_file(kFolder / "golden.tsv"));
}

TEST(Zip, ErrorsNameTheLocation) {
  std::string found;
  for (const std::string& name : files("bad-")) {
    found += name + ": " + complaint(read_file(kFolder / name)) + "\n";
  }
  EXPECT_EQ(found, read_file(kFolder / "expected.txt"));
}

TEST(Zip, StoredBytesAreAtTheEntrysOffset) {
  const std::string archive = read_file(kFolder / "ok-padding.zip");
  const ZipDirectory directory = read_zip_directory(input_of(archive), {});
  const ZipEntry* entry = directory.find("a");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(archive.substr(entry->data_offset, entry->stored_bytes), "alpha");
  EXPECT_EQ(entry->data_offset, 60U);
  EXPECT_EQ(directory.find("b"), nullptr);
}

TEST(Zip, TheStartOfAnEntryEqualsThatOfTheWholeEntry) {
  std::size_t deflated = 0;
  for (const std::string& name : files("ok-")) {
    const std::string archive = read_file(kFolder / name);
    const ZipInput input = input_of(archive);
    for (const ZipEntry& entry : read_zip_directory(input, {}).entries) {
      const std::vector<std::byte> whole = read_zip_entry(input, entry);
      deflated += entry.method == ZipMethod::deflated ? whole.size() : 0;
      for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{100},
                                     std::size_t{5000}, kMaxZipStartBytes, kMaxZipStartBytes * 4}) {
        const std::size_t most = std::min({size, whole.size(), kMaxZipStartBytes});
        EXPECT_EQ(read_zip_entry_start(input, entry, size),
                  std::vector(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(most)));
      }
    }
  }
  EXPECT_GT(deflated, 0U);
}

/// A block of a deflate stream that stores `bytes` (at most 65,535) without compression.
std::string stored_block(std::string_view bytes, bool is_last = false) {
  const auto byte = [](std::size_t value) { return static_cast<char>(value & 0xFF); };
  const std::size_t size = bytes.size();
  return std::string{byte(is_last ? 1 : 0), byte(size), byte(size >> 8U), byte(~size),
                     byte(~size >> 8U)} +
         std::string(bytes);
}

/// The entry "a" of an archive that consists of these deflated bytes.
ZipEntry deflated_entry(const std::string& deflated, std::size_t size_bytes) {
  ZipEntry entry;
  entry.name = "a";
  entry.method = ZipMethod::deflated;
  entry.stored_bytes = deflated.size();
  entry.size_bytes = size_bytes;
  return entry;
}

std::string error_of(const auto& call) { return test::message_of(call, ErrorCode::corrupt); }

TEST(Zip, ALargeEntryWithoutItsLastBlockIsTruncated) {
  std::string deflated;
  for (int i = 0; i < 1100; ++i) deflated += stored_block(std::string(62'000, 'x'));
  const ZipEntry entry = deflated_entry(deflated, std::size_t{1100} * 62'000);
  EXPECT_EQ(
      error_of([&] { check_zip_entry(input_of(deflated), entry); }),
      "x.zip: entry \"a\": its deflated data is truncated: expected a last block, found none");
}

TEST(Zip, TheStartOfADamagedEntryIsRefused) {
  const auto start_of = [](const std::string& deflated, std::size_t declared, std::size_t wanted) {
    return text_of(
        read_zip_entry_start(input_of(deflated), deflated_entry(deflated, declared), wanted));
  };
  const std::string block = stored_block(std::string(200, 'x'), true);
  EXPECT_EQ(start_of(block, 200, 100), std::string(100, 'x'));
  EXPECT_EQ(start_of(block, 200, 300), std::string(200, 'x'));
  EXPECT_EQ(error_of([&] { start_of(block, 100, 300); }),
            "x.zip: entry \"a\": it inflates to another size than declared: expected 100 bytes, "
            "found more");
  EXPECT_EQ(error_of([&] { start_of(block, 300, 300); }),
            "x.zip: entry \"a\": it inflates to another size than declared: expected 300 bytes, "
            "found 200");
  const std::string cut = stored_block(std::string(200, 'x'));
  EXPECT_EQ(start_of(cut, 200, 199), std::string(199, 'x'));
  EXPECT_EQ(
      error_of([&] { start_of(cut, 200, 200); }),
      "x.zip: entry \"a\": its deflated data is truncated: expected a last block, found none");
  // Compressors write empty blocks when a program flushes them.
  std::string flushed;
  for (int i = 0; i < 100'000; ++i) flushed += stored_block("");
  EXPECT_EQ(start_of(flushed + block, 200, 100), std::string(100, 'x'));
}

TEST(Zip, TheCommentIsReturned) {
  const std::string archive = read_file(kFolder / "ok-comment.zip");
  EXPECT_EQ(read_zip_directory(input_of(archive), {}).comment, "PK and more");
}

TEST(Zip, NoPrefixIsAnArchive) {
  for (const std::string& name : files("ok-")) {
    const std::string archive = read_file(kFolder / name);
    for (std::size_t size = 0; size < archive.size(); ++size) {
      EXPECT_NE(complaint(archive.substr(0, size)), "") << name << " cut to " << size;
    }
  }
}

TEST(Zip, FlippedBitsAreRefusedOrChangeNoContent) {
  std::mt19937 random(1);
  for (const std::string& name : files("ok-")) {
    const std::string archive = read_file(kFolder / name);
    const auto before = contents(archive);
    for (int i = 0; i < 500; ++i) {
      std::string damaged = archive;
      damaged[random() % damaged.size()] ^= static_cast<char>(1U << (random() % 8));
      if (!complaint(damaged).empty()) continue;
      // The flip was not detected, so it is in a date, a version or an attribute, none of which
      // affect the contents. A flip in a name is detected, because names are stored twice.
      EXPECT_EQ(contents(damaged), before) << name << ", flip " << i;
    }
  }
}

TEST(Zip, LimitsAreSetByTheCaller) {
  const std::string archive = read_file(kFolder / "ok-deflated.zip");
  const auto code_with = [&](const ZipLimits& limits) {
    try {
      read_zip_directory(input_of(archive), limits);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::io;
  };
  EXPECT_EQ(code_with({.max_entries = 1}), ErrorCode::unsupported);
  EXPECT_EQ(code_with({.max_directory_bytes = 93}), ErrorCode::unsupported);
  EXPECT_EQ(code_with({.max_inflated_bytes = 999}), ErrorCode::unsupported);
  EXPECT_EQ(code_with({.max_ratio = 2}), ErrorCode::unsupported);
  EXPECT_EQ(code_with({.max_entries = 2, .max_directory_bytes = 94, .max_inflated_bytes = 1000}),
            ErrorCode::io);
}

TEST(Zip, Crc32MatchesZipAndCanBeContinued) {
  const std::string text = "123456789";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(crc32(bytes), 0xcbf43926U);
  EXPECT_EQ(crc32(bytes.subspan(4), crc32(bytes.first(4))), 0xcbf43926U);
  EXPECT_EQ(crc32({}), 0U);
}

TEST(Crc32, OfZerosEqualsTheCrcOfZeroBytes) {
  for (const std::size_t size : {0U, 1U, 2U, 3U, 64U, 1000U, 65537U}) {
    EXPECT_EQ(crc32_of_zeros(size), crc32(std::vector<std::byte>(size))) << size;
  }
}

}  // namespace
}  // namespace tenfold::codecs
