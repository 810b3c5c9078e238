#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tenfold::os {

/// Allocates zeroed, page-aligned memory, from 2 MiB on with huge pages where available. For large
/// buffers that are reused, where each small page would cost a fault and a TLB entry. Throws
/// std::bad_alloc, also for size 0.
std::shared_ptr<std::byte> allocate_pages(std::size_t size_bytes);

/// Makes malloc keep the memory that is freed after opening a file, and reuse it for the next file.
///
/// glibc returns large blocks to the system when they are freed, so the pages of the next blocks
/// fault again: opening a file of 10,000 tensors takes 2,600 page faults, a third of the time.
/// glibc raises its mmap threshold to the size of a block that was allocated and freed, so this
/// function allocates and frees one of 31 MiB. Up to twice that size may stay with the process. Has
/// no effect on other C libraries.
void keep_freed_memory() noexcept;

/// The bytes that this process can allocate without swapping: MemAvailable of /proc/meminfo, or
/// fewer if a cgroup of this process limits them. The maximum of uint64 if the system reports
/// neither.
std::uint64_t available_memory_bytes();

/// The smaller of `at_most` and the bytes that the cgroups listed in the file `cgroups` may still
/// allocate. Tests replace `cgroups` (/proc/self/cgroup) and `root` (/sys/fs/cgroup).
std::uint64_t available_in_cgroups(const std::string& cgroups, const std::string& root,
                                   std::uint64_t at_most);

}  // namespace tenfold::os
