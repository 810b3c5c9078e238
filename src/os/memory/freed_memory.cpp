#include "os/memory/freed_memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>

namespace tenfold::os {

void keep_freed_memory() noexcept {
  // Below the largest block that glibc learns from (32 MiB). No page of it is touched.
  constexpr std::size_t kLearntBytes = std::size_t{31} << 20;
  static std::atomic<bool> learnt{false};
  if (learnt.exchange(true, std::memory_order_relaxed)) return;
  void* volatile block = std::malloc(kLearntBytes);  // volatile: not to be optimised away
  std::free(block);
}

}  // namespace tenfold::os
