#include "codecs/zip/writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <libdeflate.h>

#include <tenfold/error.hpp>

#include "codecs/zip/structure.hpp"
#include "support/message_of.hpp"

namespace tenfold::codecs {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

/// Returns an archive of `items`, whose stored bytes are `stored` and whose CRC-32s are `crcs`.
std::string archive_of(const std::vector<ZipItem>& items, const std::vector<std::string>& stored,
                       const std::vector<std::uint32_t>& crcs) {
  const ZipLayout layout(items);
  std::string archive;
  for (std::size_t i = 0; i < items.size(); ++i) {
    archive += layout.local_header(i, crcs[i]);
    EXPECT_EQ(archive.size(), layout.data_offset(i));
    archive += stored[i];
  }
  EXPECT_EQ(archive.size(), layout.directory_offset());
  return archive + layout.directory(crcs);
}

std::string deflated(const std::string& text) {
  libdeflate_compressor* machine = libdeflate_alloc_compressor(6);
  std::string bytes(libdeflate_deflate_compress_bound(machine, text.size()), '\0');
  bytes.resize(
      libdeflate_deflate_compress(machine, text.data(), text.size(), bytes.data(), bytes.size()));
  libdeflate_free_compressor(machine);
  return bytes;
}

/// An archive of any size that stores only the parts that were written; all other bytes are 0.
struct SparseArchive {
  std::vector<std::pair<std::uint64_t, std::string>> parts;
  std::uint64_t size_bytes = 0;

  void put(std::uint64_t offset, std::string bytes) {
    size_bytes = std::max(size_bytes, offset + bytes.size());
    parts.emplace_back(offset, std::move(bytes));
  }
  ZipInput input() const {
    return {"x.zip", size_bytes, [this](std::uint64_t offset, std::span<std::byte> into) {
              std::ranges::fill(into, std::byte{0});
              for (const auto& [at, bytes] : parts) {
                const std::uint64_t begin = std::max(at, offset);
                const std::uint64_t end = std::min(at + bytes.size(), offset + into.size());
                if (begin >= end) continue;
                std::memcpy(into.data() + (begin - offset), bytes.data() + (begin - at),
                            end - begin);
              }
            }};
  }
};

/// Writes the headers and the directory of an archive with this layout, without the data of its
/// items, and reads its entries.
std::vector<ZipEntry> read_back(const ZipLayout& layout) {
  SparseArchive archive;
  std::vector<std::uint32_t> crcs;
  for (std::size_t i = 0; i < layout.items().size(); ++i) {
    crcs.push_back(static_cast<std::uint32_t>(i * 77));
    const std::string header = layout.local_header(i, crcs[i]);
    archive.put(layout.data_offset(i) - header.size(), header);
  }
  archive.put(layout.directory_offset(), layout.directory(crcs));
  return read_zip_directory(archive.input(), {}).entries;
}

ZipItem stored_item(std::string name, std::uint64_t size, std::uint32_t alignment = 1) {
  ZipItem item;
  item.name = std::move(name);
  item.size_bytes = size;
  item.stored_bytes = size;
  item.alignment = alignment;
  return item;
}

TEST(ZipWriter, RoundTripsItsEntries) {
  const std::string text(5000, 'x');
  const std::string packed = deflated(text);
  ZipItem second = stored_item("d/zip", text.size());
  second.method = ZipMethod::deflated;
  second.stored_bytes = packed.size();
  const std::vector<ZipItem> items = {stored_item("a", 3, 64), second, stored_item("\u00e9/0", 0),
                                      stored_item("b", 5, 4096)};
  const std::string archive =
      archive_of(items, {"abc", packed, "", "hello"},
                 {crc32(bytes_of("abc")), crc32(bytes_of(text)), 0, crc32(bytes_of("hello"))});
  const ZipInput input = zip_input("x.zip", bytes_of(archive));
  const ZipDirectory directory = read_zip_directory(input, {});
  ASSERT_EQ(directory.entries.size(), 4U);
  const std::vector<std::string> contents = {"abc", text, "", "hello"};
  for (std::size_t i = 0; i < 4; ++i) {
    const std::vector<std::byte> bytes = read_zip_entry(input, directory.entries[i]);
    EXPECT_EQ(directory.entries[i].name, items[i].name);
    EXPECT_TRUE(std::ranges::equal(bytes, bytes_of(contents[i]))) << items[i].name;
    EXPECT_EQ(directory.entries[i].data_offset % items[i].alignment, 0U);
  }
}

TEST(ZipWriter, AnEmptyArchiveIsItsEndRecord) {
  const std::string archive = archive_of({}, {}, {});
  EXPECT_EQ(archive.size(), 22U + kZipStructureCommentBytes);
  EXPECT_TRUE(read_zip_directory(zip_input("x.zip", bytes_of(archive)), {}).entries.empty());
}

TEST(ZipWriter, SizesAndOffsetsAround4GibAreExact) {
  constexpr std::uint64_t kLimit = 0xffffffff;
  for (const std::uint64_t size : {kLimit - 1, kLimit, kLimit + 1, 5 * kLimit}) {
    for (const std::uint32_t alignment : {1U, 64U, 32768U}) {
      const ZipLayout layout({stored_item("small", 10, alignment),
                              stored_item("large", size, alignment),
                              stored_item("after", 7, alignment)});
      const std::vector<ZipEntry> entries = read_back(layout);
      ASSERT_EQ(entries.size(), 3U);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(entries[i].size_bytes, layout.items()[i].size_bytes);
        EXPECT_EQ(entries[i].data_offset, layout.data_offset(i));
        EXPECT_EQ(entries[i].data_offset % alignment, 0U);
        EXPECT_EQ(entries[i].crc32, i * 77);
      }
    }
  }
}

TEST(ZipWriter, MoreThan65535EntriesAreCounted) {
  for (const std::size_t count : {65534U, 65535U, 65536U, 70000U}) {
    std::vector<ZipItem> items;
    std::string archive;
    for (std::size_t i = 0; i < count; ++i) items.push_back(stored_item(std::to_string(i), 0));
    const std::vector<std::uint32_t> crcs(count, 0);
    archive = archive_of(items, std::vector<std::string>(count), crcs);
    const ZipDirectory directory = read_zip_directory(zip_input("x.zip", bytes_of(archive)), {});
    EXPECT_EQ(directory.entries.size(), count);
  }
}

TEST(ZipWriter, MoreEntriesThanTheReaderAcceptsAreRefused) {
  const std::uint64_t most = ZipLimits().max_entries;
  ZipLayout layout;
  for (std::uint64_t i = 0; i < most; ++i) layout.add(stored_item("a", 0));
  const auto add = [&] { layout.add(stored_item("a", 0)); };
  EXPECT_EQ(test::message_of(add, ErrorCode::unsupported),
            "zip: the number of entries is too large for tenfold to open the archive: expected at "
            "most 1000000, found more; save as a folder");
}

std::string complaint(const std::vector<ZipItem>& items) {
  try {
    ZipLayout layout(items);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(ZipWriter, InvalidNamesAndAlignmentsAreRefused) {
  EXPECT_THAT(complaint({stored_item("../a", 1)}), ::testing::HasSubstr("\"..\" component"));
  EXPECT_THAT(complaint({stored_item("", 1)}), ::testing::HasSubstr("is empty"));
  EXPECT_THAT(complaint({stored_item("a\xff", 1)}), ::testing::HasSubstr("is not UTF-8"));
  EXPECT_THAT(complaint({stored_item(std::string(65536, 'a'), 1)}),
              ::testing::HasSubstr("too long: expected at most 65535 bytes, found 65536"));
  EXPECT_THAT(complaint({stored_item("a", 1), stored_item("a", 2)}),
              ::testing::HasSubstr("entry \"a\": its name is duplicated"));
  EXPECT_THAT(complaint({stored_item("a", 1, 3)}), ::testing::HasSubstr("power of two"));
  EXPECT_EQ(complaint({stored_item(std::string(65535, 'a'), 1)}), "");
}

TEST(ZipWriter, Crc32sOfTwoRangesAreCombined) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string text(random() % 5000, '\0');
    for (char& c : text) c = static_cast<char>(random());
    const std::size_t middle = random() % (text.size() + 1);
    const auto bytes = bytes_of(text);
    EXPECT_EQ(crc32_combine(crc32(bytes.first(middle)), crc32(bytes.subspan(middle)),
                            text.size() - middle),
              crc32(bytes));
  }
  // More zeros than a test could hash: appending 2^35 zeros twice must equal appending 2^36 zeros.
  const std::uint32_t half = crc32_combine(0x12345678, 0, std::uint64_t{1} << 35U);
  EXPECT_EQ(crc32_combine(half, 0, std::uint64_t{1} << 35U),
            crc32_combine(0x12345678, 0, std::uint64_t{1} << 36U));
}

}  // namespace
}  // namespace tenfold::codecs
