#include "os/memory/advice.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <tenfold/buffer.hpp>

#include "os/fs/file.hpp"
#include "os/memory/mapping.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::os {
namespace {

constexpr std::size_t kPages = 3000;
constexpr std::size_t kPageBytes = 4096;

/// Maps a file that is not in the page cache. Returns std::nullopt if the file system cannot drop
/// pages.
std::optional<Buffer> cold(const test::TemporaryFolder& folder) {
  const auto path = folder.path() / "pages";
  std::ofstream(path, std::ios::binary) << std::string(kPages * kPageBytes, 'x');
  File file = File::open_read(path);
  file.sync();  // dirty pages cannot be dropped
  if (!drop_from_page_cache(file)) return std::nullopt;
  Buffer mapped = map_file(file, 0, kPages * kPageBytes, MapKind::read_only);
  expect_random_access(mapped.bytes(), true);
  return mapped;
}

bool becomes_resident(std::span<const std::byte> bytes) {
  for (int i = 0; i < 500 && !is_resident(bytes); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return is_resident(bytes);
}

/// Drops the file from the page cache, if the file system can.
void forget_cached(const Path& path) {
  const File file = File::open_read(path);
  EXPECT_EQ(::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
}

class PopulateTest : public ::testing::Test {
 protected:
  Path make(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  test::TemporaryFolder folder_;
};

TEST_F(PopulateTest, PopulatedPagesAreResidentAndKeepPrivateWrites) {
  const std::size_t size_bytes = 3U << 20;
  const Path path = make("large", std::string(size_bytes, 'x'));
  File::open_read_write(path).sync();
  const Buffer buffer = map_file(File::open_read(path), 5, size_bytes - 5, MapKind::private_copy);
  buffer.mutable_data()[4097] = std::byte{'y'};
  forget_cached(path);
  populate(buffer.bytes().subspan(1));
  EXPECT_TRUE(is_resident(buffer.bytes().subspan(1)));
  EXPECT_EQ(buffer.data()[4096], std::byte{'x'});
  EXPECT_EQ(buffer.data()[4097], std::byte{'y'});
  populate({});
  EXPECT_TRUE(is_resident({}));
}

TEST_F(PopulateTest, PopulateMakesUncachedPagesResident) {
  const Path path = make("large", std::string(1U << 20, 'x'));
  File::open_read_write(path).sync();
  forget_cached(path);
  const Buffer buffer = map_file(File::open_read(path), 0, 1U << 20, MapKind::private_copy);
  if (is_resident(buffer.bytes())) GTEST_SKIP() << "this file system keeps its files in memory";
  populate(buffer.bytes());
  EXPECT_TRUE(is_resident(buffer.bytes()));
}

TEST_F(PopulateTest, PopulatingATruncatedFileDoesNotCrash) {
  const Path path = make("large", std::string(1U << 20, 'x'));
  const Buffer buffer = map_file(File::open_read(path), 0, 1U << 20, MapKind::private_copy);
  std::filesystem::resize_file(path, 10);
  populate(buffer.bytes());
  EXPECT_EQ(buffer.data()[9], std::byte{'x'});
}

TEST(Advice, PrefetchesManyRangesAndNothingElse) {
  const test::TemporaryFolder folder;
  const auto mapped = cold(folder);
  if (!mapped) GTEST_SKIP() << "the file system is in memory";
  std::vector<std::span<const std::byte>> ranges;
  // There are more ranges than one system call accepts, and some are empty.
  for (std::size_t page = 0; page < kPages; page += 2) {
    ranges.push_back(mapped->bytes().subspan(page * kPageBytes + 7, 100));
    if (page % 100 == 0) ranges.emplace_back();
  }
  will_need(ranges);
  for (const auto& range : ranges) ASSERT_TRUE(becomes_resident(range));
  EXPECT_FALSE(is_resident(mapped->bytes().subspan(kPageBytes, 1)));
}

TEST(Advice, CountsMajorPageFaultsOfThisThread) {
  const test::TemporaryFolder folder;
  const auto mapped = cold(folder);
  if (!mapped) GTEST_SKIP() << "the file system is in memory";
  const std::uint64_t before = num_pages_waited_for();
  volatile std::byte sum{};
  for (std::size_t page = 0; page < 10; ++page) sum = mapped->bytes()[page * kPageBytes];
  const std::uint64_t cold_pages = num_pages_waited_for() - before;
  EXPECT_GE(cold_pages, 5U);
  for (std::size_t page = 0; page < 10; ++page) sum = mapped->bytes()[page * kPageBytes];
  EXPECT_EQ(num_pages_waited_for() - before, cold_pages);
  static_cast<void>(sum);
}

}  // namespace
}  // namespace tenfold::os
