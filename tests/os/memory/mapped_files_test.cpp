#include "os/memory/mapped_files.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "os/memory/mapping.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::os {
namespace {

using Range = std::span<const std::byte>;

class MappedFilesTest : public ::testing::Test {
 protected:
  Buffer map(const std::string& name, MapKind kind = MapKind::private_copy) {
    std::string text;
    while (text.size() < 50'000) text += name + std::to_string(text.size()) + " ";
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return map_file(File::open_read(folder_ / name), 0, text.size(), kind);
  }
  test::TemporaryFolder folder_;
};

TEST_F(MappedFilesTest, FindsTheFileAndOffsetOfEachRange) {
  const Buffer a = map("a");
  const Buffer b = map("a name with  blanks", MapKind::read_only);
  const std::vector<Range> ranges = {a.bytes(), b.bytes().subspan(20'001, 10),
                                     a.bytes().subspan(5, 5)};
  const std::vector<MappedFile> found = files_of_mappings(ranges);
  ASSERT_EQ(found.size(), 3U);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(found[i].file);
    std::vector<std::byte> read(std::min<std::size_t>(ranges[i].size(), 100));
    found[i].file->read_at(found[i].offset_bytes, read);
    EXPECT_EQ(std::memcmp(read.data(), ranges[i].data(), read.size()), 0);
    EXPECT_FALSE(is_remote(*found[i].file));
  }
  EXPECT_EQ(found[1].offset_bytes, 20'001U);
  EXPECT_EQ(found[0].file, found[2].file) << "one file is opened once";
}

TEST_F(MappedFilesTest, FindsNoneForMemoryAndForRemovedFiles) {
  const std::vector<std::byte> memory(100);
  const Buffer removed = map("removed");
  std::filesystem::remove(folder_ / "removed");
  const Buffer replaced = map("replaced");
  std::filesystem::remove(folder_ / "replaced");
  std::ofstream(folder_ / "other") << "other";
  std::filesystem::rename(folder_ / "other", folder_ / "replaced");
  const std::vector<Range> ranges = {memory, removed.bytes(), replaced.bytes()};
  for (const MappedFile& found : files_of_mappings(ranges)) EXPECT_FALSE(found.file);
}

}  // namespace
}  // namespace tenfold::os
