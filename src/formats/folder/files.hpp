#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/buffer.hpp>
#include <tenfold/io.hpp>

#include "core/tree/leaf_source.hpp"
#include "formats/folder/arena.hpp"

namespace tenfold::detail::formats::folder {

// The storage of a saved tree: a folder of the file system (handle.hpp) or an archive
// (archive/folder.hpp). Readers of trees use only StoredFile and Folder.

/// Identity and size of stored bytes.
struct StoredInfo {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t offset_bytes = 0;  ///< archives: offset of the entry in the archive; otherwise 0
  std::uint64_t num_links = 1;     ///< number of hard links
  std::uint64_t size_bytes = 0;
  /// Returns the identity of the first `num_bytes` bytes.
  StoredRange range(std::uint64_t num_bytes) const {
    return {
        .device = device, .inode = inode, .offset_bytes = offset_bytes, .size_bytes = num_bytes};
  }
};

/// An open file of a saved tree.
class StoredFile {
 public:
  StoredFile() = default;
  StoredFile(const StoredFile&) = delete;
  StoredFile& operator=(const StoredFile&) = delete;
  virtual ~StoredFile() = default;

  /// The path, for messages.
  virtual const std::string& display() const noexcept = 0;
  /// The information at the time when the file was opened.
  virtual const StoredInfo& info() const noexcept = 0;
  /// The current size of a file in the file system, which another process may have changed since
  /// info(). For an entry of an archive, the size when the archive was opened.
  virtual std::uint64_t size_bytes_now() const = 0;

  /// Reads from `offset_bytes` on, until `into` is full or the file ends. Returns the number of
  /// bytes read.
  virtual std::size_t read_some_at(std::uint64_t offset_bytes, std::span<std::byte> into) const = 0;
  /// Fills `into` with the bytes from `offset_bytes` on. Throws Error(corrupt) if the file is too
  /// short.
  virtual void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const = 0;

  /// Throws Error(unsupported) if reading the first `size_bytes` bytes would take much more than
  /// `size_bytes` of memory.
  virtual void check_cost(std::uint64_t /*size_bytes*/) const {}

  /// Returns the first `size_bytes` bytes, which must exist, mapped according to `mode`. If `mode`
  /// is not write_through, a file of the file system is copied to `arena` if Arena::takes() is
  /// true for the size, and an entry of an archive that cannot be mapped is read into memory.
  /// Throws Error(unsupported) if the file does not support write_through.
  virtual Buffer map(std::uint64_t size_bytes, Mode mode, Arena& arena) const = 0;
};

/// A mapped range of a file, and the file's name for messages.
struct MappedPart {
  Buffer bytes;
  std::string display;
};

/// A folder of an opened tree. If another folder or archive replaces the tree at its path, this
/// object still refers to the old one. Thread-safe.
class Folder {
 public:
  /// Maximum depth of a folder below the root of the tree.
  static constexpr std::size_t kMaxDepth = 512;

  Folder() = default;
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  virtual ~Folder() = default;

  /// The path, for messages.
  virtual const std::string& display() const noexcept = 0;

  /// Returns the sub-folder of that name, or null if there is none. Throws Error(unsupported) if it
  /// is nested deeper than kMaxDepth.
  virtual std::shared_ptr<Folder> try_child(const std::string& name) = 0;
  /// True if there is a sub-folder of that name.
  virtual bool has_child(const std::string& name) = 0;

  /// Returns the file of that name, or null if there is none. Set `for_writing` if map() will be
  /// called with write_through.
  virtual std::unique_ptr<StoredFile> try_open(const std::string& name, bool for_writing) = 0;
  /// Returns the information about the entry of that name, without opening it, or nullopt if there
  /// is none. In the file system, the entry may also be a folder or a link.
  virtual std::optional<StoredInfo> file_info(const std::string& name) = 0;
  /// Returns the content of a small file, or nullopt if there is none. Throws Error(corrupt) for
  /// more than `limit_bytes`, before allocating memory.
  virtual std::optional<std::string> read_text(const std::string& name,
                                               std::uint64_t limit_bytes) = 0;

  /// True if this folder may have a `%commit`: it is the root of a tree in the file system.
  virtual bool may_grow() const noexcept { return false; }

  /// True if all tensors of the tree are in one mapping. This is the case for an archive if all its
  /// tensors can be mapped.
  virtual bool is_one_mapping() const noexcept { return false; }

  /// Makes writes durable. `mapped`: the mapped ranges to write back. An archive ignores `mapped`,
  /// makes durable all entries that this object opened for writing, and updates their CRC-32s.
  /// Throws Error(io).
  virtual void flush(const std::vector<MappedPart>& mapped, Monitor* monitor) = 0;

  /// True if the tree's path no longer names the root that was opened, or if this folder was
  /// removed, so that files may be missing. Always false for an archive.
  virtual bool was_replaced() = 0;
  /// Throws Error(io) (ESTALE): the tree was replaced after it was opened.
  [[noreturn]] virtual void throw_replaced() const = 0;
};

}  // namespace tenfold::detail::formats::folder
