#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <tenfold/buffer.hpp>

#include "os/fs/file.hpp"

namespace tenfold::os {

enum class MapKind : std::uint8_t {
  /// MAP_PRIVATE | MAP_NORESERVE, readable and writable: writes stay in memory. If
  /// vm.overcommit_memory is 2 and the mapping would exceed the commit limit, the pages are
  /// read-only and Buffer::writable() is false.
  private_copy,
  shared_write,  ///< MAP_SHARED: writes reach the file
  read_only,     ///< MAP_SHARED, not writable: for reads by the library itself
};

/// Maps [offset_bytes, offset_bytes + size_bytes) of a file; the offset need not be aligned. The
/// file may be closed afterwards. An empty range gives an empty Buffer. Throws Error(corrupt), with
/// the expected and the found size, if the file ends before the range does. If the process has
/// reached the kernel's limit of mappings, throws Error(io) ENOMEM with a message that names
/// vm.max_map_count and the single-file formats. `file_bytes`: the size of the file, if the caller
/// already has it.
Buffer map_file(const File& file, std::uint64_t offset_bytes, std::uint64_t size_bytes,
                MapKind kind, std::optional<std::uint64_t> file_bytes = {});

/// A mapping of a file, and the path and inode number of the file when it was opened.
struct Mapping {
  std::byte* begin = nullptr;      ///< start of the mapped pages
  std::size_t size_bytes = 0;      ///< size of the mapped pages
  std::uint64_t offset_bytes = 0;  ///< offset of `begin` in the file
  std::string path;                ///< File::display() of the mapped file
  std::uint64_t inode = 0;         ///< 0 if unknown, because the file was new

  /// Offset in the file of a mapped byte.
  std::uint64_t offset_of(const std::byte* byte) const noexcept {
    return offset_bytes + static_cast<std::uint64_t>(byte - begin);
  }
  /// Opens the file again. Null if that fails, if the path names a file with another inode number,
  /// or if `inode` is unknown.
  std::shared_ptr<const File> open_file() const;
};

/// The mapping of a buffer that map_file() returned for a range that is not empty, or of a slice of
/// such a buffer; null for other buffers. Valid as long as the bytes are mapped.
const Mapping* mapping_of(const Buffer& buffer) noexcept;

/// Waits until the mapped pages of `buffer` (shared_write) are durable (msync). `display` names the
/// file in errors.
void sync_mapping(const Buffer& buffer, const std::string& display);

/// The kernel's limit of mappings per process (vm.max_map_count).
std::uint64_t max_map_count();

}  // namespace tenfold::os
