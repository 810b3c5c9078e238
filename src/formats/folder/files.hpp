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

#include "formats/folder/arena.hpp"

namespace tenfold::detail::formats::folder {

// Where the files of a saved tree come from: a folder of the system (memmap_handle.hpp) or an
// archive (memmap_archive_reader.hpp). Whoever reads a tree sees these two classes only.

/// What tells stored bytes from others, and how many they are.
struct StoredInfo {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t offset_bytes = 0;  ///< within that file of the system
  std::uint64_t num_links = 1;     ///< names that these bytes have
  std::uint64_t size_bytes = 0;
  bool same_bytes(const StoredInfo& o) const noexcept {
    return device == o.device && inode == o.inode && offset_bytes == o.offset_bytes;
  }
};

/// One file of a saved tree, open.
class StoredFile {
 public:
  StoredFile() = default;
  StoredFile(const StoredFile&) = delete;
  StoredFile& operator=(const StoredFile&) = delete;
  virtual ~StoredFile() = default;

  /// The path as the user knows it.
  virtual const std::string& display() const noexcept = 0;
  /// As it was when the file was opened.
  virtual const StoredInfo& info() const noexcept = 0;
  /// Its size by now: somebody may have cut it.
  virtual std::uint64_t size_bytes_now() const = 0;

  /// Fills `into` from `offset_bytes`, or as much as there is; returns the bytes read.
  virtual std::size_t read_some_at(std::uint64_t offset_bytes, std::span<std::byte> into) const = 0;
  /// Fills `into`, or throws Error(corrupt).
  virtual void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const = 0;

  /// Throws Error(unsupported) where reading the first `size_bytes` bytes takes much more memory.
  virtual void check_cost(std::uint64_t /*size_bytes*/) const {}

  /// The first `size_bytes` bytes (there are as many): mapped as `mode` says, or in memory, small
  /// ones in `arena`. Throws Error(unsupported) where write_through cannot reach the file.
  virtual Buffer map(std::uint64_t size_bytes, Mode mode, Arena& arena) const = 0;

  /// Asks for the first `size_bytes` bytes to be read ahead; a hint.
  virtual void will_need(std::uint64_t size_bytes) const = 0;
};

/// What of a file is mapped, and how messages name the file.
struct MappedPart {
  Buffer bytes;
  std::string display;
};

/// One folder of an opened tree, which stays the one that was opened. Thread-safe.
class Folder {
 public:
  /// Nodes deeper than this are refused.
  static constexpr std::size_t kMaxDepth = 512;

  Folder() = default;
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  virtual ~Folder() = default;

  /// The path as the user knows it.
  virtual const std::string& display() const noexcept = 0;

  /// The sub-folder of that name, or null if there is none.
  virtual std::shared_ptr<Folder> try_child(const std::string& name) = 0;
  virtual bool has_child(const std::string& name) = 0;

  /// The file of that name, or null if there is none. `for_writing`: map() will be asked for
  /// write_through.
  virtual std::unique_ptr<StoredFile> try_open(const std::string& name, bool for_writing) = 0;
  /// The same without opening it.
  virtual std::optional<StoredInfo> file_info(const std::string& name) = 0;
  /// The text of a small file, or nothing if there is none. Throws Error(corrupt) beyond
  /// `limit_bytes`, before anything is allocated.
  virtual std::optional<std::string> read_text(const std::string& name,
                                               std::uint64_t limit_bytes) = 0;

  /// True for the root of a tree whose rows a `%commit` beside them may count.
  virtual bool may_grow() const noexcept { return false; }

  /// True if all files of the tree come from one mapping.
  virtual bool is_one_mapping() const noexcept { return false; }

  /// Brings what was written through `mapped`, mapped from files of this folder, to the device.
  virtual void flush(const std::vector<MappedPart>& mapped, Monitor* monitor) = 0;

  /// True if the tree that was opened is no longer what its path names, or was removed.
  virtual bool was_replaced() = 0;
  /// Throws Error(io): replaced since it was opened.
  [[noreturn]] virtual void throw_replaced() const = 0;
};

}  // namespace tenfold::detail::formats::folder
