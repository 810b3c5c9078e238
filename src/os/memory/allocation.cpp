#include "os/memory/allocation.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>
#include <string>

namespace tenfold::os {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;

}  // namespace

std::shared_ptr<std::byte> allocate_pages(std::size_t size_bytes) {
  // A huge page must be aligned to its size: map more, and begin at the first multiple of the size.
  const std::size_t extra = size_bytes >= kHugePageBytes ? kHugePageBytes : 0;
  const std::size_t mapped = size_bytes + extra;
  void* memory =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<std::byte*>(memory);
  std::byte* begin = first;
  if (extra != 0) {
    const auto address = reinterpret_cast<std::uintptr_t>(first);
    begin += (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
    ::madvise(begin, size_bytes, MADV_HUGEPAGE);
  }
  return {begin, [first, mapped](std::byte*) { ::munmap(first, mapped); }};
}

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

std::uint64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kibibytes = 0;
  std::string unit;
  while (file >> name >> kibibytes >> unit) {
    if (name == "MemAvailable:") return kibibytes * 1024;
  }
  return std::numeric_limits<std::uint64_t>::max();
}

}  // namespace tenfold::os
