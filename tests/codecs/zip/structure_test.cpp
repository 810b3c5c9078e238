#include "codecs/zip/structure.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "codecs/zip/writer.hpp"
#include "codecs/zip/zip.hpp"

namespace tenfold::codecs {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

constexpr std::size_t kEndBytes = 22;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

struct Content {
  std::string name;
  std::string bytes;
  std::uint32_t alignment = 1;
};

std::string archive_of(const std::vector<Content>& contents) {
  ZipLayout layout;
  std::vector<std::uint32_t> crcs;
  std::string archive;
  for (const Content& content : contents) {
    ZipItem item;
    item.name = content.name;
    item.size_bytes = item.stored_bytes = content.bytes.size();
    item.alignment = content.alignment;
    layout.add(item);
    crcs.push_back(crc32(bytes_of(content.bytes)));
    archive += layout.local_header(crcs.size() - 1, crcs.back()) + content.bytes;
  }
  return archive + layout.directory(crcs);
}

std::string sample() {
  return archive_of({{"meta.json", "{}"},
                     {"a", std::string(300, 'a'), 64},
                     {"folder/empty", ""},
                     {"folder/b", std::string(7, 'b'), 4096}});
}

/// The problem of the structure; "" if there is none.
std::string fault_of(const std::string& archive) {
  const ZipInput input = zip_input("x.zip", bytes_of(archive));
  try {
    check_zip_structure(input, read_zip_directory(input, {}), "save it again");
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported);
    return error.what();
  }
  return "";
}

std::string with_comment(std::string archive, const std::string& comment) {
  archive.resize(archive.size() - kZipStructureCommentBytes);
  archive[archive.size() - 2] = static_cast<char>(comment.size());
  return archive + comment;
}

TEST(ZipStructure, TheWriterAndTheReaderComputeTheSameChecksum) {
  for (const std::string& archive : {archive_of({}), sample()}) {
    const ZipInput input = zip_input("x.zip", bytes_of(archive));
    const ZipDirectory directory = read_zip_directory(input, {});
    EXPECT_EQ(directory.comment.size(), kZipStructureCommentBytes);
    EXPECT_EQ(directory.comment, zip_structure_comment(zip_structure_checksum(input, directory)));
    EXPECT_EQ(fault_of(archive), "");
  }
}

TEST(ZipStructure, EveryFlippedBitOutsideTheDataIsDetected) {
  const std::string good = sample();
  const ZipInput input = zip_input("x.zip", bytes_of(good));
  const ZipDirectory directory = read_zip_directory(input, {});
  const auto is_data = [&](std::size_t at) {
    for (const ZipEntry& entry : directory.entries) {
      if (at >= entry.data_offset && at < entry.data_offset + entry.stored_bytes) return true;
    }
    return false;
  };
  std::size_t num_flips = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    if (is_data(at)) continue;
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = good;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      EXPECT_NE(fault_of(damaged), "") << "byte " << at << ", bit " << bit;
      ++num_flips;
    }
  }
  EXPECT_GT(num_flips, 8U * 4000);
}

TEST(ZipStructure, DataAndCrc32sAreNotIncluded) {
  const std::string other = archive_of({{"meta.json", "[]"},
                                        {"a", std::string(300, 'x'), 64},
                                        {"folder/empty", ""},
                                        {"folder/b", std::string(7, 'y'), 4096}});
  EXPECT_NE(other, sample());
  EXPECT_EQ(other.substr(other.size() - kZipStructureCommentBytes),
            sample().substr(sample().size() - kZipStructureCommentBytes));
}

TEST(ZipStructure, NamesWhatWasExpectedAndTheRemedy) {
  std::string damaged = sample();
  damaged[12] ^= 1;  // the date of the first entry
  const std::string fault = fault_of(damaged);
  EXPECT_THAT(fault,
              StartsWith("x.zip: archive: bytes outside the entries changed since tenfold wrote "
                         "them: damage, or another tool edited the archive: expected the comment "
                         "\"tenfold_xxh3 "));
  EXPECT_THAT(fault, EndsWith("; if the archive is right, save it again"));
}

TEST(ZipStructure, ArchivesWithoutTheCommentOrWithAnotherOneAreAccepted) {
  std::string damaged = sample();
  damaged[12] ^= 1;
  for (const std::string& comment :
       {std::string(), std::string("made by hand"), std::string(kZipStructureCommentBytes, 'x')}) {
    EXPECT_EQ(fault_of(with_comment(damaged, comment)), "") << comment;
  }
}

TEST(ZipStructure, TheCorrectedCommentIsValid) {
  std::string damaged = sample();
  damaged[12] ^= 1;
  const ZipInput input = zip_input("x.zip", bytes_of(damaged));
  const auto comment = corrected_zip_comment(input, read_zip_directory(input, {}));
  ASSERT_TRUE(comment);
  EXPECT_EQ(fault_of(with_comment(damaged, *comment)), "");
  EXPECT_EQ(damaged.size() - kEndBytes - kZipStructureCommentBytes, damaged.rfind("PK\x05\x06"));
}

}  // namespace
}  // namespace tenfold::codecs
