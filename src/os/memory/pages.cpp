#include "os/memory/pages.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace tenfold::os {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;

}  // namespace

std::shared_ptr<std::byte> allocate_pages(std::size_t size_bytes) {
  // A huge page must be aligned to its size: allocate more, and unmap the excess.
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

}  // namespace tenfold::os
