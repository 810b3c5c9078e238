#include "os/memory/page_reader.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "os/fs/directory.hpp"
#include "os/memory/advice.hpp"
#include "os/memory/mapping.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::os {
namespace {

constexpr std::size_t kFileBytes = std::size_t{4} << 20U;

File written(const Path& path) {
  {
    File file = File::create_at(Directory::open(path.parent_path()), path.filename().string());
    file.write_at(0, std::vector<std::byte>(kFileBytes, std::byte{7}));
    file.sync();
  }
  return File::open_read(path);
}

TEST(PageReader, PrefetchesRequestedRanges) {
  const test::TemporaryFolder folder;
  const auto file = std::make_shared<const File>(written(folder / "data"));
  if (!drop_from_page_cache(*file)) GTEST_SKIP() << "the file system is in memory";
  const Buffer mapped = map_file(*file, 0, kFileBytes, MapKind::read_only);
  PageReader reader;
  std::vector<PageReader::Range> ranges;
  for (std::size_t at = 0; at < kFileBytes; at += 100'000) ranges.push_back({file, at, 30'000});
  reader.prefetch(ranges);
  reader.wait();
  for (const PageReader::Range& range : ranges) {
    EXPECT_TRUE(is_resident(mapped.bytes().subspan(range.offset_bytes, 30'000)));
  }
}

TEST(PageReader, IgnoresRangesBeyondTheEndOfTheFile) {
  const test::TemporaryFolder folder;
  const auto file = std::make_shared<const File>(written(folder / "data"));
  PageReader reader;
  reader.prefetch(
      std::vector<PageReader::Range>{{file, kFileBytes - 10, 1000}, {file, 1U << 30U, 10}});
  reader.wait();
}

TEST(PageReader, MayBeDestroyedWithQueuedRequests) {
  const test::TemporaryFolder folder;
  const auto file = std::make_shared<const File>(written(folder / "data"));
  for (int i = 0; i < 5; ++i) {
    PageReader reader;
    reader.prefetch(std::vector<PageReader::Range>(100'000, {file, 0, kFileBytes}));
  }
}

}  // namespace
}  // namespace tenfold::os
