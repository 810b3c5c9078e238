#include "os/fs/holes.hpp"

#include <gtest/gtest.h>

#include "os/fs/directory.hpp"
#include "os/memory/mapping.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::os {
namespace {

using test::TemporaryFolder;

TEST(Holes, SparseRegionsAreHolesAndMappedWritesAreData) {
  const TemporaryFolder folder;
  Directory directory = Directory::open(folder.path());
  File file = File::create_at(directory, "x");
  constexpr std::uint64_t kSize = std::uint64_t{8} << 20;
  constexpr std::uint64_t kAt = std::uint64_t{4} << 20;
  file.truncate(kSize);
  if (next_data(file, 0) == 0) GTEST_SKIP() << "the file system does not report holes";
  EXPECT_EQ(next_data(file, 0), kSize);
  EXPECT_EQ(next_hole(file, 0), 0U);
  {
    // A page that is written only through the mapping counts as data, too.
    const Buffer mapped = map_file(file, 0, kSize, MapKind::shared_write);
    mapped.mutable_data()[kAt + 5] = std::byte{1};
    EXPECT_LE(next_data(file, 0), kAt + 5);
    EXPECT_GT(next_data(file, 0), 0U);
    EXPECT_GT(next_hole(file, kAt + 5), kAt + 5);
    EXPECT_EQ(next_hole(file, kSize - 1), kSize - 1);
    EXPECT_EQ(next_data(file, kSize - 1), kSize);
  }
  EXPECT_EQ(next_data(file, kSize + 1), kSize + 1);
  EXPECT_EQ(next_hole(file, kSize + 1), kSize + 1);
}

}  // namespace
}  // namespace tenfold::os
