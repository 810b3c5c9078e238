#include "ingest/text/byte_stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "ingest/ingest_of.hpp"

namespace tenfold {
namespace {

using test::IngestOf;
using test::values;
using testing::ElementsAre;
using testing::HasSubstr;

std::string gzipped(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd_of(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

std::string bzip2_of(const std::string& text) {
  auto size = static_cast<unsigned>(text.size() + text.size() / 50 + 1000);
  std::string packed(size, '\0');
  std::string copy = text;
  EXPECT_EQ(BZ2_bzBuffToBuffCompress(packed.data(), &size, copy.data(),
                                     static_cast<unsigned>(copy.size()), 1, 0, 0),
            BZ_OK);
  packed.resize(size);
  return packed;
}

std::string xz_of(const std::string& text, std::uint32_t dictionary_bytes = 1U << 20) {
  lzma_options_lzma options;
  EXPECT_FALSE(lzma_lzma_preset(&options, 1));
  options.dict_size = dictionary_bytes;
  const lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, nullptr}};
  std::string packed(lzma_stream_buffer_bound(text.size()), '\0');
  std::size_t size = 0;
  EXPECT_EQ(lzma_stream_buffer_encode(const_cast<lzma_filter*>(filters), LZMA_CHECK_CRC64, nullptr,
                                      reinterpret_cast<const std::uint8_t*>(text.data()),
                                      text.size(), reinterpret_cast<std::uint8_t*>(packed.data()),
                                      &size, packed.size()),
            LZMA_OK);
  packed.resize(size);
  return packed;
}

std::string lines(int begin, int end) {
  std::string text;
  for (int i = begin; i < end; ++i) text += "{\"x\": " + std::to_string(i) + "}\n";
  return text;
}

void expect_counts_up(const Dataset& ds, std::int64_t size) {
  const std::vector<std::int64_t> x = values<std::int64_t>(ds, "x");
  ASSERT_EQ(static_cast<std::int64_t>(x.size()), size);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], static_cast<std::int64_t>(i));
}

TEST(ByteStream, ReadsGzipOfSeveralMembers) {
  IngestOf of;
  expect_counts_up(
      of.rows("a.jsonl.gz", gzipped(lines(0, 200'000)) + gzipped(lines(200'000, 200'010)) +
                                std::string(512, '\0')),
      200'010);
  EXPECT_EQ(IngestOf().rows("e.csv.gz", gzipped("")).size(), 0);
}

TEST(ByteStream, ReadsZstdOfSeveralFrames) {
  IngestOf of;
  expect_counts_up(
      of.rows("a.jsonl.zst", zstd_of(lines(0, 200'000)) + zstd_of(lines(200'000, 200'010))),
      200'010);
}

TEST(ByteStream, ReadsBzip2OfSeveralStreams) {
  IngestOf of;
  expect_counts_up(
      of.rows("a.jsonl.bz2", bzip2_of(lines(0, 200'000)) + bzip2_of(lines(200'000, 200'010))),
      200'010);
  EXPECT_EQ(IngestOf().rows("e.csv.bz2", bzip2_of("")).size(), 0);
}

TEST(ByteStream, ReadsXzOfSeveralStreams) {
  IngestOf of;
  expect_counts_up(of.rows("A.JSONL.XZ", xz_of(lines(0, 200'000)) + std::string(8, '\0') +
                                             xz_of(lines(200'000, 200'010)) + std::string(4, '\0')),
                   200'010);
  EXPECT_EQ(IngestOf().rows("e.csv.xz", xz_of("")).size(), 0);
}

TEST(ByteStream, RefusesAnXzThatNeedsTooMuchMemory) {
  IngestOf of;
  std::string packed = xz_of(lines(0, 10));
  // One byte in the header of the block encodes the size of the dictionary. The last four bytes of
  // the header are its CRC-32.
  const std::size_t header = 12;
  const std::size_t header_bytes = (static_cast<unsigned char>(packed[header]) + 1U) * 4U;
  const std::size_t at = packed.find("\x21\x01", header) + 2;
  packed[at] = 37;  // encodes 1.5 GiB
  const std::uint32_t crc = lzma_crc32(
      reinterpret_cast<const std::uint8_t*>(packed.data()) + header, header_bytes - 4, 0);
  for (std::size_t i = 0; i < 4; ++i) {
    packed[header + header_bytes - 4 + i] = static_cast<char>(crc >> (8 * i));
  }
  EXPECT_THAT(
      of.error("a.jsonl.xz", packed, ErrorCode::unsupported),
      HasSubstr("it takes too much memory to decompress: expected at most 268435456 bytes"));
}

TEST(ByteStream, ALargeZstdWindowIsUnsupported) {
  IngestOf of;
  // A frame with a window of 2^28 bytes, and an empty last block.
  const std::string packed("\x28\xB5\x2F\xFD\0\x90\1\0\0", 9);
  EXPECT_THAT(of.error("a.jsonl.zst", packed, ErrorCode::unsupported),
              HasSubstr("expected a window of at most 134217728 bytes, found a larger one"));
}

TEST(ByteStream, ReportsTruncationAndDamage) {
  struct Case {
    const char* name;
    std::string packed;
    const char* expected;
  };
  const std::string text = lines(0, 50'000);
  const std::vector<Case> cases = {{"a.jsonl.gz", gzipped(text), "gzip data"},
                                   {"a.jsonl.zst", zstd_of(text), "zstd data"},
                                   {"a.jsonl.bz2", bzip2_of(text), "bzip2 data"},
                                   {"a.jsonl.xz", xz_of(text), "xz data"}};
  for (const auto& [name, packed, expected] : cases) {
    IngestOf of;
    for (const std::size_t cut : {packed.size() / 2, packed.size() - 1, std::size_t{1}}) {
      EXPECT_THAT(of.error(name, packed.substr(0, cut), ErrorCode::corrupt),
                  HasSubstr("it may be truncated"))
          << name << " of " << cut;
    }
    EXPECT_THAT(of.error(name, text, ErrorCode::corrupt), HasSubstr(expected));
    EXPECT_THAT(of.error(name, packed + "more and more", ErrorCode::corrupt), HasSubstr(expected));
    std::string flipped = packed;
    flipped[packed.size() / 2] = static_cast<char>(flipped[packed.size() / 2] ^ 0x55);
    EXPECT_NE(of.error(name, flipped, ErrorCode::corrupt), "") << name;
  }
}

/// A hand-made zip archive: one deflated and one stored entry.
std::string zip_of(const std::string& first, const std::string& second) {
  struct Entry {
    std::string name;
    std::string text;
    std::string bytes;
    std::uint16_t method;
  };
  std::string deflated = gzipped(first);
  deflated = deflated.substr(10, deflated.size() - 18);  // without gzip's header and trailer
  const std::vector<Entry> entries = {{"b.csv", first, deflated, 8}, {"a.csv", second, second, 0}};
  std::string archive;
  std::string directory;
  const auto put = [](std::string& into, std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) into.push_back(static_cast<char>(value >> (8 * i)));
  };
  for (const Entry& entry : entries) {
    std::string fields;
    put(fields, 20, 2);
    put(fields, 0, 2);
    put(fields, entry.method, 2);
    put(fields, 0, 4);
    put(fields,
        crc32(0, reinterpret_cast<const Bytef*>(entry.text.data()),
              static_cast<uInt>(entry.text.size())),
        4);
    put(fields, entry.bytes.size(), 4);
    put(fields, entry.text.size(), 4);
    put(fields, entry.name.size(), 2);
    put(fields, 0, 2);
    directory += "PK\1\2" + std::string("\24\0", 2) + fields + std::string(10, '\0');
    put(directory, archive.size(), 4);
    directory += entry.name;
    archive += "PK\3\4" + fields + entry.name + entry.bytes;
  }
  const std::size_t at = archive.size();
  archive += directory + "PK\5\6" + std::string(4, '\0');
  put(archive, entries.size(), 2);
  put(archive, entries.size(), 2);
  put(archive, directory.size(), 4);
  put(archive, at, 4);
  put(archive, 0, 2);
  return archive;
}

TEST(ByteStream, ReadsTheTextFilesOfAnArchiveSortedByName) {
  IngestOf of;
  const std::string archive = zip_of("x\n3\n4\n", "x\n1\n2\n");
  EXPECT_THAT(values<std::int64_t>(of.rows("a.zip", archive), "x"), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(of.report.num_files, 2U);
  IngestOf damaged;
  std::string flipped = archive;
  flipped[flipped.find("x\n1\n2") + 2] = '9';
  EXPECT_THAT(damaged.error("a.zip", flipped, ErrorCode::corrupt), HasSubstr("entry \"a.csv\""));
  EXPECT_NE(damaged.error("b.zip", "PK nonsense", ErrorCode::corrupt), "");
}

}  // namespace
}  // namespace tenfold
