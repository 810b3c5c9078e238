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
  /// MAP_PRIVATE | MAP_NORESERVE, readable and writable: writes stay in memory. Where the system
  /// refuses that (vm.overcommit_memory = 2) the pages are read-only and Buffer::writable() false.
  private_copy,
  shared_write,  ///< MAP_SHARED: writes reach the file
  read_only,     ///< for the engine's own readers
};

/// Maps [offset_bytes, offset_bytes + size_bytes) of a file (any offset; pages are rounded). The
/// range must lie inside the file: Error(corrupt) naming expected and found size otherwise. An
/// empty range gives an empty Buffer. Past the kernel's limit of maps: Error(io) ENOMEM whose text
/// names vm.max_map_count and the one-file formats. The file may be closed afterwards.
/// `file_bytes`: the size of the file, by whoever has just asked for it.
Buffer map_file(const File& file, std::uint64_t offset_bytes, std::uint64_t size_bytes,
                MapKind kind, std::optional<std::uint64_t> file_bytes = {});

/// Waits until the mapped pages of `buffer` (shared_write) are on the device (msync). `display`
/// names the file in errors.
void sync_mapping(const Buffer& buffer, const std::string& display);

/// True if every page of `bytes` is in memory, so that touching it costs no I/O. Of files that the
/// user may not write the system says so in any case.
bool is_resident(std::span<const std::byte> bytes);

/// Asks the system to read the pages of `bytes` that are not in memory. A hint; does not wait for
/// them.
void prefetch(std::span<const std::byte> bytes) noexcept;

/// Makes the pages of `bytes` accessible without a fault, reading what is not in memory. A hint:
/// what cannot be had is left to the one who touches it.
void populate(std::span<const std::byte> bytes) noexcept;

/// Memory that programs can have without swapping; the largest number if the system does not say.
std::uint64_t available_memory_bytes();

/// An upper bound of the maps this process may have (vm.max_map_count).
std::uint64_t max_map_count();

}  // namespace tenfold::os
