#include "os/memory/advice.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include <tenfold/buffer.hpp>

#include "os/fs/descriptor.hpp"
#include "os/memory/mapping.hpp"
#include "os/system.hpp"

// The headers of C libraries older than Linux 5.14 do not define MADV_POPULATE_READ.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace tenfold::os {
namespace {

void advise(std::span<const std::byte> bytes, int advice) noexcept {
  if (bytes.empty()) return;
  const std::span<std::byte> pages = pages_of(bytes);
  ::madvise(pages.data(), pages.size(), advice);
}

/// Ranges per process_madvise call: the kernel's maximum.
constexpr std::size_t kRangesACall = 1024;
/// For up to this many ranges, one madvise call for each is as fast as process_madvise.
constexpr std::size_t kFewRanges = 8;

/// Prefetches ranges by process_madvise, which takes half the time of one madvise call for each
/// range. Returns false if no descriptor is free or the kernel refuses. Linux before 6.13 allows
/// the call for privileged processes only, Linux before 5.10 does not have it.
bool will_need_batched(std::span<const std::span<const std::byte>> ranges) noexcept {
  static std::atomic<bool> is_refused = false;
  if (is_refused.load(std::memory_order_relaxed)) return false;
  // Opened at each call: after a fork, the parent's descriptor would refer to the parent.
  const Descriptor self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!self.valid()) return false;  // a later call may succeed: perhaps no descriptor is free now
  std::array<iovec, kRangesACall> some;
  for (std::size_t begin = 0; begin < ranges.size(); begin += kRangesACall) {
    const auto part = ranges.subspan(begin, std::min(kRangesACall, ranges.size() - begin));
    std::size_t count = 0;
    for (const auto& range : part) {
      if (range.empty()) continue;
      const std::span<std::byte> pages = pages_of(range);
      some[count++] = {pages.data(), pages.size()};
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

bool is_resident(std::span<const std::byte> bytes) {
  if (bytes.empty()) return true;
  const std::span<std::byte> pages = pages_of(bytes);
  std::vector<unsigned char> in_memory(pages.size() / page_bytes());
  if (::mincore(pages.data(), pages.size(), in_memory.data()) != 0) return false;
  return std::all_of(in_memory.begin(), in_memory.end(), [](unsigned char p) { return p & 1; });
}

void will_need(std::span<const std::byte> bytes) noexcept { advise(bytes, MADV_WILLNEED); }

void will_need(std::span<const std::span<const std::byte>> ranges) noexcept {
  if (ranges.size() > kFewRanges && will_need_batched(ranges)) return;
  for (const auto& range : ranges) will_need(range);
}

void populate(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return;
  const std::span<std::byte> pages = pages_of(bytes);
  // Linux before 5.14 refuses MADV_POPULATE_READ.
  if (::madvise(pages.data(), pages.size(), MADV_POPULATE_READ) == 0) return;
  will_need(bytes);
}

void expect_random_access(std::span<const std::byte> bytes, bool random) noexcept {
  advise(bytes, random ? MADV_RANDOM : MADV_NORMAL);
}

void expect_huge_pages(std::span<const std::byte> bytes) noexcept { advise(bytes, MADV_HUGEPAGE); }

std::uint64_t num_pages_waited_for() noexcept {
  rusage usage{};
  if (::getrusage(RUSAGE_THREAD, &usage) != 0) return 0;
  return static_cast<std::uint64_t>(usage.ru_majflt);
}

bool drop_from_page_cache(const File& file) {
  const std::uint64_t size_bytes = file.size_bytes();
  if (size_bytes == 0) return true;
  if (::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED) != 0) return false;
  const Buffer mapped = map_file(file, 0, size_bytes, MapKind::read_only);
  // A sampled page that is still cached shows that not all pages were dropped. The end of the file
  // is sampled, too, because the pages that were written last stay in the cache longest.
  for (const std::uint64_t at : {std::uint64_t{0}, size_bytes / 2, size_bytes - 1}) {
    if (is_resident(mapped.bytes().subspan(static_cast<std::size_t>(at), 1))) return false;
  }
  return true;
}

}  // namespace tenfold::os
