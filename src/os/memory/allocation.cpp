#include "os/memory/allocation.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>
#include <string>

#include "os/memory/advice.hpp"

namespace tenfold::os {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;

/// Where one version of cgroups reports the limit and the use of memory.
struct CgroupFiles {
  const char* folder;  ///< of the memory controller, below the root
  const char* limit;
  const char* usage;
  const char* active;    ///< name in memory.stat: bytes of cached files, recently used
  const char* inactive;  ///< name in memory.stat: bytes of other cached files
};
constexpr CgroupFiles kFirstVersion = {"/memory", "/memory.limit_in_bytes",
                                       "/memory.usage_in_bytes", "total_active_file",
                                       "total_inactive_file"};
constexpr CgroupFiles kSecondVersion = {"", "/memory.max", "/memory.current", "active_file",
                                        "inactive_file"};

/// The smaller of `at_most` and the bytes that the cgroup in `folder` may still allocate. All
/// cached pages of files count as available, because the kernel can drop them.
std::uint64_t available_in_cgroup(const std::string& folder, const CgroupFiles& files,
                                  std::uint64_t at_most) {
  std::uint64_t limit = 0;
  std::uint64_t usage = 0;
  std::ifstream limit_file(folder + files.limit);
  std::ifstream usage_file(folder + files.usage);
  // Without a limit, the file of version 2 contains "max", which is not a number.
  if (!(limit_file >> limit) || !(usage_file >> usage)) return at_most;
  std::uint64_t available = limit - std::min(limit, usage);
  if (available >= at_most) return at_most;
  std::ifstream statistics(folder + "/memory.stat");
  std::string name;
  std::uint64_t bytes = 0;
  while (statistics >> name >> bytes) {
    if (name == files.active || name == files.inactive) available += bytes;
  }
  return std::min(available, at_most);
}

}  // namespace

std::shared_ptr<std::byte> allocate_pages(std::size_t size_bytes) {
  // A huge page must be aligned to its size: map 2 MiB more, and begin at the first multiple of 2
  // MiB.
  const std::size_t extra = size_bytes >= kHugePageBytes ? kHugePageBytes : 0;
  if (size_bytes > std::numeric_limits<std::size_t>::max() - extra) throw std::bad_alloc();
  const std::size_t mapped = size_bytes + extra;
  void* memory =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* first = static_cast<std::byte*>(memory);
  std::byte* begin = first;
  if (extra != 0) {
    const auto address = reinterpret_cast<std::uintptr_t>(first);
    begin += (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
    expect_huge_pages({begin, size_bytes});
  }
  return {begin, [first, mapped](std::byte*) { ::munmap(first, mapped); }};
}

void keep_freed_memory() noexcept {
  // Just below the maximum of glibc's dynamic mmap threshold (32 MiB on 64-bit systems). malloc
  // touches only the page of the block's header.
  constexpr std::size_t kThresholdBytes = std::size_t{31} << 20;
  static std::atomic<bool> is_raised{false};
  if (is_raised.exchange(true, std::memory_order_relaxed)) return;
  // volatile prevents the compiler from removing the allocation.
  void* volatile block = std::malloc(kThresholdBytes);
  std::free(block);
}

std::uint64_t available_in_cgroups(const std::string& cgroups, const std::string& root,
                                   std::uint64_t at_most) {
  std::ifstream file(cgroups);
  for (std::string line; std::getline(file, line);) {
    // "0::/a/b" in version 2 of cgroups, "5:cpu,memory:/a/b" in version 1.
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_first_version = ("," + controllers + ",").find(",memory,") != std::string::npos;
    if (!is_first_version && !controllers.empty()) continue;
    const CgroupFiles& files = is_first_version ? kFirstVersion : kSecondVersion;
    // The limits of the parent groups apply, too, up to `root`. In a container, the path may be
    // relative to the host's root group, while `root` is the group of the container: then only
    // `root` has the files.
    std::string path = line.substr(second + 1);
    for (;;) {
      at_most = available_in_cgroup(root + files.folder + path, files, at_most);
      const std::size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.erase(slash);
    }
  }
  return at_most;
}

std::uint64_t available_memory_bytes() {
  std::uint64_t available = std::numeric_limits<std::uint64_t>::max();
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kibibytes = 0;
  std::string unit;
  while (file >> name >> kibibytes >> unit) {
    if (name != "MemAvailable:") continue;
    available = kibibytes * 1024;
    break;
  }
  return available_in_cgroups("/proc/self/cgroup", "/sys/fs/cgroup", available);
}

}  // namespace tenfold::os
