#include "os/memory/allocation.hpp"

#include <sys/resource.h>

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "base/sanitizers.hpp"

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
  GTEST_SKIP() << "another allocator";
#endif
  keep_freed_memory();
  use_and_free();
  const long before = num_page_faults();
  for (int i = 0; i < 10; ++i) use_and_free();
  EXPECT_LT(num_page_faults() - before, 500);  // would be 20,000 if every block had new pages
}

TEST(AvailableMemory, IsLessThanAPetabyteAndMoreThanAMegabyte) {
  EXPECT_GT(available_memory_bytes(), 1ULL << 20);
  EXPECT_LT(available_memory_bytes(), 1ULL << 50);
}

}  // namespace
}  // namespace tenfold::os
