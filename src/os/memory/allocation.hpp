#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tenfold::os {

/// Allocates zeroed, page-aligned memory; if the size is at least 2 MiB, in huge pages where
/// available. Intended for large buffers that are reused: each small page would cost a page fault
/// and a TLB entry. Throws std::bad_alloc if the memory cannot be mapped, and for size 0.
std::shared_ptr<std::byte> allocate_pages(std::size_t size_bytes);

/// Makes malloc keep the memory that is freed after opening or saving a file, for the next file.
///
/// By default, glibc returns large blocks to the system when they are freed, so the pages of the
/// next blocks fault again. Opening a file of 10,000 tensors then causes 2,600 page faults, which
/// take a third of the time. When a large block is freed, glibc raises its mmap threshold to the
/// size of the block, so this function allocates and frees 31 MiB. Then up to 62 MiB of free memory
/// may stay with the process. Has no effect with other C libraries, or if the program has set
/// glibc's thresholds (mallopt).
void keep_freed_memory() noexcept;

/// The bytes that this process can allocate without swapping: MemAvailable of /proc/meminfo, or
/// fewer if a cgroup of this process limits them. The maximum of uint64 if the system reports
/// neither MemAvailable nor a limit.
std::uint64_t available_memory_bytes();

/// The smallest of `at_most` and the bytes that each cgroup listed in the file `cgroups`, and each
/// of its parents, may still allocate. Tests replace `cgroups` (/proc/self/cgroup) and `root`
/// (/sys/fs/cgroup).
std::uint64_t available_in_cgroups(const std::string& cgroups, const std::string& root,
                                   std::uint64_t at_most);

}  // namespace tenfold::os
