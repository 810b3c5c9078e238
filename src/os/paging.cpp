#include "os/paging.hpp"

#include <sys/mman.h>
#include <sys/uio.h>

#include <cstdint>

#include "os/system.hpp"

namespace tenfold::os {
namespace {

/// The whole pages that hold `bytes`.
iovec pages_of(std::span<const std::byte> bytes) noexcept {
  const std::size_t page = page_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size();
  return {reinterpret_cast<void*>(begin), (end - begin + page - 1) / page * page};
}

}  // namespace

void will_need(std::span<const std::span<const std::byte>> ranges) noexcept {
  for (const auto& range : ranges) {
    if (range.empty()) continue;
    const iovec pages = pages_of(range);
    ::madvise(pages.iov_base, pages.iov_len, MADV_WILLNEED);
  }
}

void expect_random_access(std::span<const std::byte> bytes, bool random) noexcept {
  if (bytes.empty()) return;
  const iovec pages = pages_of(bytes);
  ::madvise(pages.iov_base, pages.iov_len, random ? MADV_RANDOM : MADV_NORMAL);
}

}  // namespace tenfold::os
