#include "os/memory/paging.hpp"

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
#include "os/memory/page_cache.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::os {
namespace {

constexpr std::size_t kPages = 3000;
constexpr std::size_t kPageBytes = 4096;

/// A mapped file that is not cached; empty if the file system cannot drop its pages.
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

TEST(Paging, PrefetchesManyRangesAndNothingElse) {
  const test::TemporaryFolder folder;
  const auto mapped = cold(folder);
  if (!mapped) GTEST_SKIP() << "the file system is in memory";
  std::vector<std::span<const std::byte>> ranges;
  // More than one call takes, including empty ranges.
  for (std::size_t page = 0; page < kPages; page += 2) {
    ranges.push_back(mapped->bytes().subspan(page * kPageBytes + 7, 100));
    if (page % 100 == 0) ranges.emplace_back();
  }
  will_need(ranges);
  for (const auto& range : ranges) ASSERT_TRUE(becomes_resident(range));
  EXPECT_FALSE(is_resident(mapped->bytes().subspan(kPageBytes, 1)));
}

TEST(Paging, CountsMajorPageFaultsOfThisThread) {
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
