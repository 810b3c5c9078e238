#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <tenfold/buffer.hpp>

#include "os/fs/file.hpp"

namespace tenfold::os {

enum class MapKind : std::uint8_t {
  /// MAP_PRIVATE | MAP_NORESERVE, readable and writable: writes stay in memory. If the system
  /// refuses that (vm.overcommit_memory = 2), the pages are read-only and Buffer::writable() is
  /// false.
  private_copy,
  shared_write,  ///< MAP_SHARED: writes reach the file
  read_only,     ///< for the engine's own readers
};

/// Maps [offset_bytes, offset_bytes + size_bytes) of a file; the offset need not be aligned. The
/// range must lie inside the file: otherwise Error(corrupt) with expected and found size. An empty
/// range gives an empty Buffer. Beyond the kernel's limit of maps, throws Error(io) ENOMEM with a
/// message that names vm.max_map_count and the one-file formats. The file may be closed afterwards.
/// `file_bytes`: the size of the file, if the caller already has it.
Buffer map_file(const File& file, std::uint64_t offset_bytes, std::uint64_t size_bytes,
                MapKind kind, std::optional<std::uint64_t> file_bytes = {});

/// Waits until the mapped pages of `buffer` (shared_write) are durable (msync). `display` names the
/// file in errors.
void sync_mapping(const Buffer& buffer, const std::string& display);

/// True if every page of `bytes` is in the page cache, so that touching them costs no I/O. For
/// files that the user may not write, the kernel always reports true.
bool is_resident(std::span<const std::byte> bytes);

/// Prefetches the pages of `bytes` without waiting. A hint.
void prefetch(std::span<const std::byte> bytes) noexcept;

/// Maps the pages of `bytes` so that later accesses do not fault, and reads missing ones. A hint:
/// pages that cannot be read are left for the later access.
void populate(std::span<const std::byte> bytes) noexcept;

/// Memory available without swapping; the largest number if the system does not report it.
std::uint64_t available_memory_bytes();

/// The limit of maps per process (vm.max_map_count).
std::uint64_t max_map_count();

}  // namespace tenfold::os
