#include "os/memory/freed_memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>

namespace tenfold::os {

void keep_freed_memory() noexcept {
  // Just below the maximum of glibc's dynamic mmap threshold (32 MiB). No page of the block is
  // touched.
  constexpr std::size_t kThresholdBytes = std::size_t{31} << 20;
  static std::atomic<bool> is_raised{false};
  if (is_raised.exchange(true, std::memory_order_relaxed)) return;
  // volatile prevents the compiler from removing the allocation.
  void* volatile block = std::malloc(kThresholdBytes);
  std::free(block);
}

}  // namespace tenfold::os
