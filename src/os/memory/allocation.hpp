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

/// Makes malloc keep the memory that was freed after one file for the next one.
///
/// glibc returns large blocks to the system when they are freed, so the pages of the next blocks
/// fault again: opening a file of 10,000 tensors takes 2,600 page faults, a third of the time.
/// glibc raises its mmap threshold to the size of a block that was allocated and freed, so this
/// function allocates and frees one of 31 MiB. Up to twice that size may stay with the process. Has
/// no effect on other C libraries.
void keep_freed_memory() noexcept;

/// Memory that is available without swapping: of the host (MemAvailable of /proc/meminfo), or less
/// if the limit of a cgroup of this process leaves less. The largest number if the system reports
/// neither.
std::uint64_t available_memory_bytes();

/// The smaller one of `at_most` and the memory that the limits of cgroups leave. `cgroups`: a file
/// like /proc/self/cgroup; `root`: a folder like /sys/fs/cgroup, which tests replace.
std::uint64_t available_in_cgroups(const std::string& cgroups, const std::string& root,
                                   std::uint64_t at_most);

}  // namespace tenfold::os
