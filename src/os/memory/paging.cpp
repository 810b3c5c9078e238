#include "os/memory/paging.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "os/fs/descriptor.hpp"

#include "os/system.hpp"

namespace tenfold::os {
namespace {

/// Extends `bytes` to page boundaries.
iovec whole_pages_of(std::span<const std::byte> bytes) noexcept {
  const std::size_t page = page_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(bytes.data()) + bytes.size();
  return {reinterpret_cast<void*>(begin), (end - begin + page - 1) / page * page};
}

/// Ranges per process_madvise call: the kernel's maximum.
constexpr std::size_t kRangesACall = 1024;
/// For up to this many ranges, one madvise call for each is as fast.
constexpr std::size_t kFewRanges = 8;

/// True if one process_madvise call handled all ranges, which takes half the time of one call for
/// each. Kernels before 6.13 allow it for privileged processes only, kernels before 5.10 lack it.
bool will_need_batched(std::span<const std::span<const std::byte>> ranges) noexcept {
  static std::atomic<bool> is_refused = false;
  if (is_refused.load(std::memory_order_relaxed)) return false;
  // Opened for each call, because a forked child has another PID.
  const Descriptor self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  std::array<iovec, kRangesACall> some;
  for (std::size_t begin = 0; begin < ranges.size(); begin += kRangesACall) {
    const auto part = ranges.subspan(begin, std::min(kRangesACall, ranges.size() - begin));
    std::size_t count = 0;
    for (const auto& range : part) {
      if (!range.empty()) some[count++] = whole_pages_of(range);
    }
    if (count == 0) continue;
    if (::syscall(SYS_process_madvise, self.get(), some.data(), count, MADV_WILLNEED, 0) < 0) {
      is_refused.store(true, std::memory_order_relaxed);
      return false;
    }
  }
  return true;
}

}  // namespace

void will_need(std::span<const std::span<const std::byte>> ranges) noexcept {
  if (ranges.size() > kFewRanges && will_need_batched(ranges)) return;
  for (const auto& range : ranges) {
    if (range.empty()) continue;
    const iovec pages = whole_pages_of(range);
    ::madvise(pages.iov_base, pages.iov_len, MADV_WILLNEED);
  }
}

void expect_random_access(std::span<const std::byte> bytes, bool random) noexcept {
  if (bytes.empty()) return;
  const iovec pages = whole_pages_of(bytes);
  ::madvise(pages.iov_base, pages.iov_len, random ? MADV_RANDOM : MADV_NORMAL);
}

std::uint64_t num_pages_waited_for() noexcept {
  rusage usage{};
  if (::getrusage(RUSAGE_THREAD, &usage) != 0) return 0;
  return static_cast<std::uint64_t>(usage.ru_majflt);
}

}  // namespace tenfold::os
