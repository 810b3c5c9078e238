#include "os/memory/allocation.hpp"

#include <sys/resource.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/sanitizers.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::os {
namespace {

long num_page_faults() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_SELF, &usage), 0);
  return usage.ru_minflt;
}

void use_and_free() {
  std::vector<char> block(std::size_t{8} << 20, 'x');
  volatile char* bytes = block.data();
  bytes[4097] = 'y';
}

TEST(FreedMemory, IsReusedWithoutPageFaults) {
#if !defined(__GLIBC__) || TENFOLD_ASAN || TENFOLD_TSAN
  GTEST_SKIP() << "keep_freed_memory() supports only the allocator of glibc";
#endif
  keep_freed_memory();
  use_and_free();
  const long before = num_page_faults();
  for (int i = 0; i < 10; ++i) use_and_free();
  EXPECT_LT(num_page_faults() - before, 500);  // would be 20,000 if every block had new pages
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(AllocatePages, ThrowsForSizesThatOverflow) {
  EXPECT_THROW(allocate_pages(std::numeric_limits<std::size_t>::max() - 4096), std::bad_alloc);
}

TEST(AvailableMemory, IsLimitedByEachCgroupOfVersion2) {
  const test::TemporaryFolder folder;
  const auto available = [&] {
    return available_in_cgroups(folder / "cgroup", folder / "root", 1000);
  };
  EXPECT_EQ(available(), 1000U);
  write_file(folder / "cgroup", "0::/a/b\n");
  EXPECT_EQ(available(), 1000U);
  write_file(folder / "root/a/b/memory.max", "max\n");
  write_file(folder / "root/a/b/memory.current", "300\n");
  EXPECT_EQ(available(), 1000U);
  write_file(folder / "root/a/memory.max", "700\n");
  write_file(folder / "root/a/memory.current", "400\n");
  EXPECT_EQ(available(), 300U);
  write_file(folder / "root/a/memory.stat", "anon 200\nactive_file 20\ninactive_file 30\n");
  EXPECT_EQ(available(), 350U);
  write_file(folder / "root/memory.max", "100\n");  // as in a container
  write_file(folder / "root/memory.current", "120\n");
  EXPECT_EQ(available(), 0U);
}

TEST(AvailableMemory, IsLimitedByCgroupsOfVersion1) {
  const test::TemporaryFolder folder;
  write_file(folder / "cgroup", "5:cpu,memory:/docker/1\n4:cpuset:/other\n");
  write_file(folder / "root/memory/memory.limit_in_bytes", "700\n");
  write_file(folder / "root/memory/memory.usage_in_bytes", "400\n");
  write_file(folder / "root/memory/memory.stat", "active_file 1\ntotal_active_file 50\n");
  write_file(folder / "root/other/memory.max", "1\n");
  write_file(folder / "root/other/memory.current", "0\n");
  EXPECT_EQ(available_in_cgroups(folder / "cgroup", folder / "root", 1000), 350U);
}

TEST(AvailableMemory, IsLessThanAPetabyteAndMoreThanAMegabyte) {
  EXPECT_GT(available_memory_bytes(), 1ULL << 20);
  EXPECT_LT(available_memory_bytes(), 1ULL << 50);
}

}  // namespace
}  // namespace tenfold::os
