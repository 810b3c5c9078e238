#include "os/memory/mapping.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <vector>

#include <tenfold/error.hpp>

#include "base/sanitizers.hpp"
#include "os/fs/directory.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::os {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;

class MappingTest : public ::testing::Test {
 protected:
  Path make(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  static std::string text_of(const Buffer& buffer) {
    return std::string(reinterpret_cast<const char*>(buffer.data()), buffer.size_bytes());
  }
  TemporaryFolder folder_;
};

std::string read_text(const Path& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// The number of lines of /proc/self/maps that name `path`.
std::ptrdiff_t count_maps_of(const Path& path) {
  std::ifstream maps("/proc/self/maps");
  std::ptrdiff_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.ends_with(path.string());
  return count;
}

TEST_F(MappingTest, MapsAnyRangeOfTheFile) {
  std::string text;
  while (text.size() < 20000) text += std::to_string(text.size()) + " ";
  const File file = File::open_read(make("x", text));
  for (const std::uint64_t offset : {0U, 1U, 4095U, 4096U, 4097U, 12345U}) {
    for (const std::uint64_t size : {1U, 4096U, 7000U}) {
      for (const MapKind kind : {MapKind::private_copy, MapKind::read_only}) {
        EXPECT_EQ(text_of(map_file(file, offset, size, kind)), text.substr(offset, size));
      }
    }
  }
  EXPECT_EQ(text_of(map_file(file, 0, text.size(), MapKind::read_only)), text);
}

TEST_F(MappingTest, OutlivesTheFileItsNameAndOtherBuffers) {
  const Path path = make("x", "abcdef");
  Buffer tail;
  {
    const File file = File::open_read(path);
    tail = map_file(file, 0, 6, MapKind::private_copy).slice(2, 3);
  }
  EXPECT_EQ(count_maps_of(path), 1);
  EXPECT_EQ(text_of(tail), "cde");
  const Buffer copy = tail;
  tail = Buffer();
  EXPECT_EQ(text_of(copy), "cde");
  std::filesystem::rename(path, folder_ / "y");
  EXPECT_EQ(count_maps_of(folder_ / "y"), 1);
}

TEST_F(MappingTest, IsUnmappedWithItsLastBuffer) {
  const Path path = make("x", "abcdef");
  {
    const Buffer buffer = map_file(File::open_read(path), 0, 6, MapKind::read_only);
    EXPECT_EQ(count_maps_of(path), 1);
  }
  EXPECT_EQ(count_maps_of(path), 0);
}

TEST_F(MappingTest, AnEmptyRangeIsAnEmptyBuffer) {
  const File empty = File::open_read(make("empty", ""));
  const Buffer buffer = map_file(empty, 0, 0, MapKind::private_copy);
  EXPECT_EQ(buffer.size_bytes(), 0U);
  EXPECT_EQ(buffer.owner(), nullptr);
  const File file = File::open_read(make("x", "abc"));
  EXPECT_EQ(map_file(file, 3, 0, MapKind::read_only).size_bytes(), 0U);
}

TEST_F(MappingTest, ARangePastTheEndNamesBothSizes) {
  const File file = File::open_read(make("x", "abc"));
  const std::uint64_t huge = std::numeric_limits<std::uint64_t>::max();
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges = {
      {0, 4}, {3, 1}, {4, 0}, {2, huge}, {huge, 1}, {huge, huge}};
  for (const auto& [offset, size] : ranges) {
    try {
      map_file(file, offset, size, MapKind::private_copy);
      ADD_FAILURE() << offset << ", " << size;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      EXPECT_THAT(error.what(), HasSubstr("the file is too short: expected at least "));
      EXPECT_THAT(error.what(), HasSubstr("found 3; it may be truncated"));
    }
  }
}

TEST_F(MappingTest, AFileTruncatedAfterItWasOpenedIsTooShort) {
  const Path path = make("x", std::string(10000, 'x'));
  const File file = File::open_read(path);
  std::filesystem::resize_file(path, 100);
  EXPECT_THROW(map_file(file, 0, 10000, MapKind::read_only), Error);
}

TEST_F(MappingTest, WritesToAPrivateMapStayInMemory) {
  const Path path = make("x", "abc");
  const Buffer buffer = map_file(File::open_read(path), 0, 3, MapKind::private_copy);
  ASSERT_TRUE(buffer.writable());
  buffer.mutable_data()[0] = std::byte{'X'};
  EXPECT_EQ(text_of(buffer), "Xbc");
  EXPECT_EQ(read_text(path), "abc");
}

TEST_F(MappingTest, WritesToASharedMapReachTheFile) {
  const Path path = make("x", std::string(5000, 'a') + "bc");
  const Buffer buffer = map_file(File::open_read_write(path), 5000, 2, MapKind::shared_write);
  buffer.mutable_data()[1] = std::byte{'X'};
  sync_mapping(buffer, path.string());
  EXPECT_EQ(read_text(path).substr(5000), "bX");
}

TEST_F(MappingTest, AFailedSyncNamesTheFile) {
  constexpr std::size_t kBytes = 4096;
  void* const page = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const Buffer gone({static_cast<std::byte*>(page), kBytes}, nullptr);
  ASSERT_EQ(::munmap(page, kBytes), 0);
  try {
    sync_mapping(gone, "tree/x.memmap");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "tree/x.memmap: cannot be synced to disk: cannot allocate memory");
    EXPECT_EQ(error.path(), "tree/x.memmap");
  }
}

TEST_F(MappingTest, AReadOnlyMapIsNotWritable) {
  const Path path = make("x", "abc");
  EXPECT_FALSE(map_file(File::open_read(path), 0, 3, MapKind::read_only).writable());
}

TEST_F(MappingTest, ABufferHasItsFileAndOffset) {
  std::string text;
  while (text.size() < 50'000) text += std::to_string(text.size()) + " ";
  const Path path = make("a name with  blanks", text);
  for (const MapKind kind : {MapKind::private_copy, MapKind::read_only}) {
    const Buffer part = map_file(File::open_read(path), 20'001, 10'000, kind).slice(5, 100);
    const Mapping* mapping = mapping_of(part);
    ASSERT_NE(mapping, nullptr);
    EXPECT_EQ(mapping->offset_of(part.data()), 20'006U);
    const auto file = mapping->open_file();
    ASSERT_TRUE(file);
    std::vector<std::byte> read(part.size_bytes());
    file->read_at(mapping->offset_of(part.data()), read);
    EXPECT_EQ(std::memcmp(read.data(), part.data(), read.size()), 0);
  }
}

TEST_F(MappingTest, TheFileOfAMappingIsNotOpenedOnceItIsRemovedOrReplaced) {
  const Path path = make("x", "abc");
  const Buffer buffer = map_file(File::open_read(path), 0, 3, MapKind::private_copy);
  std::filesystem::remove(path);
  EXPECT_FALSE(mapping_of(buffer)->open_file());
  make("x", "def");
  EXPECT_FALSE(mapping_of(buffer)->open_file());
}

TEST_F(MappingTest, BuffersInMemoryHaveNoMapping) {
  EXPECT_EQ(mapping_of(Buffer()), nullptr);
  EXPECT_EQ(mapping_of(Buffer::allocate(100)), nullptr);
}

TEST_F(MappingTest, APrivateMapOfEightTimesTheMemoryOpens) {
  const auto memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const Path path = make("x", "abc");
  std::filesystem::resize_file(path, memory * 8);
  const Buffer buffer = map_file(File::open_read(path), 0, memory * 8, MapKind::private_copy);
  ASSERT_TRUE(buffer.writable());
  EXPECT_EQ(buffer.size_bytes(), memory * 8);
  buffer.mutable_data()[memory * 8 - 1] = std::byte{1};
  EXPECT_EQ(buffer.data()[memory * 4], std::byte{0});
  EXPECT_EQ(buffer.data()[1], std::byte{'b'});
}

TEST_F(MappingTest, ErrorBeyondTheLimitOfMapsNamesTheSetting) {
#if TENFOLD_ASAN || TENFOLD_TSAN
  GTEST_SKIP() << "the sanitizer ends the process when its own memory cannot be mapped";
#endif
  if (max_map_count() > 200'000) GTEST_SKIP() << "the limit of maps is too high to be reached";
  const File file = File::open_read(make("x", std::string(4096, 'x')));
  std::vector<Buffer> buffers;
  try {
    // The same page is mapped each time, because the kernel merges maps of consecutive pages.
    for (std::uint64_t i = 0; i <= max_map_count(); ++i) {
      buffers.push_back(map_file(file, 0, 4096, MapKind::read_only));
    }
    ADD_FAILURE() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_EQ(error.system_errno(), ENOMEM);
    EXPECT_THAT(error.what(), HasSubstr("vm.max_map_count"));
    EXPECT_THAT(error.what(), HasSubstr("safetensors"));
  }
  EXPECT_GT(buffers.size(), 1000U);
}

}  // namespace
}  // namespace tenfold::os
