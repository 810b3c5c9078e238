#pragma once

#include <cstdint>

#include <tenfold/buffer.hpp>

#include "os/file.hpp"

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
Buffer map_file(const File& file, std::uint64_t offset_bytes, std::uint64_t size_bytes,
                MapKind kind);

/// Waits until the mapped pages of `buffer` (shared_write) are on the device (msync).
void sync_mapping(const Buffer& buffer);

/// An upper bound of the maps this process may have (vm.max_map_count).
std::uint64_t max_map_count();

}  // namespace tenfold::os
