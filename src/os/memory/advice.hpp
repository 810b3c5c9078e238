#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "os/fs/file.hpp"

namespace tenfold::os {

// Wrappers of madvise, mincore, getrusage and posix_fadvise. All ranges of bytes are in mapped
// memory, and need not be aligned.

/// True if every page of `bytes` is in the page cache, so that an access takes no I/O. For a file
/// that the user neither owns nor may write, the kernel always reports true.
bool is_resident(std::span<const std::byte> bytes);

/// Prefetches the pages of all ranges at once, without waiting, so that the device gets many
/// requests. A hint.
void will_need(std::span<const std::byte> bytes) noexcept;
void will_need(std::span<const std::span<const std::byte>> ranges) noexcept;

/// Reads missing pages of `bytes` and maps all pages, so that later reads do not fault. Before
/// Linux 5.14, only prefetches them. A hint: errors are reported by the later access.
void populate(std::span<const std::byte> bytes) noexcept;

/// Disables readahead for the mapped pages of `bytes` (MADV_RANDOM) or, if not `random`, restores
/// the default. A hint.
void expect_random_access(std::span<const std::byte> bytes, bool random) noexcept;

/// Asks the kernel to use huge pages for the memory (MADV_HUGEPAGE). A hint.
void expect_huge_pages(std::span<const std::byte> bytes) noexcept;

/// Number of major page faults of this thread so far; 0 if it is unknown.
std::uint64_t num_pages_waited_for() noexcept;

/// Drops the file from the page cache, so that the next reader has to wait for the device. Returns
/// false if the file system rejects the request, or if is_resident() is still true for one of three
/// sampled pages. Possible reasons: the page is mapped or dirty, the file system is in memory, or
/// the user neither owns nor may write the file.
bool drop_from_page_cache(const File& file);

}  // namespace tenfold::os
