#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <tenfold/buffer.hpp>
#include <tenfold/io.hpp>

#include "codecs/zip/zip.hpp"
#include "formats/shared/mapped_zip.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {

/// Options of Archive::refresh().
struct RefreshOptions {
  bool durable = false;        ///< make the written tensors and the CRC-32s durable
  int num_threads = 0;         ///< as WriteRequest::num_threads
  Monitor* monitor = nullptr;  ///< null: progress is not reported
};

/// A `.tdz`: a zip archive whose entries are the files of a memory-mapped folder, under their
/// relative paths. Stored and aligned entries are mapped in place, through one mapping of the file.
/// map() reads any other entry into memory. In mode write_through, map() instead refuses such an
/// entry, and also one with a data descriptor. Thread-safe.
///
/// In mode write_through, holds a shared lock on the file, if the file system has locks. Writes
/// through the mapping make the CRC-32 of the entry stale. refresh() updates it, and so does the
/// destructor, which runs after all mapped tensors are destroyed. If the process crashes before the
/// update, the archive is intact except for the CRC-32s of the changed entries: verify() reports
/// them, and refresh_archive_checksums() updates them.
class Archive : public std::enable_shared_from_this<Archive> {
 public:
  /// Reads the zip directory. In mode write_through, also disables the checksums of tensors in the
  /// entry `%checksums`. Throws like codecs::read_zip_directory(), and Error(corrupt) if a file and
  /// a folder have the same name. In mode write_through, also throws like open_write_through() and
  /// drop_leaf_checksums().
  static std::shared_ptr<Archive> open(const Path& path, Mode mode);
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  ~Archive();

  const os::File& file() const noexcept { return *file_; }
  const os::FileInfo& info() const noexcept { return info_; }
  const std::vector<codecs::ZipEntry>& entries() const noexcept { return directory_.entries; }
  const codecs::ZipDirectory& directory() const noexcept { return directory_; }
  codecs::ZipInput input() const { return zip_.input(); }

  /// Returns the index of the entry of the file `path`; nullopt if there is none.
  std::optional<std::size_t> find(std::string_view path) const;
  /// True if `path` is a folder entry, or contains an entry.
  bool has_folder(std::string_view path) const;

  /// True if the entries of all tensors (is_leaf_file()) can be mapped.
  bool is_one_mapping() const noexcept { return is_one_mapping_; }

  /// Returns the first `size_bytes` bytes of the entry at index `entry`, mapped or in memory. In
  /// mode write_through, throws Error(unsupported) for an entry that is deflated, not aligned, or
  /// has a data descriptor. In other modes, throws like read_entry_into_memory() for an entry that
  /// cannot be mapped.
  Buffer map(std::size_t entry, std::uint64_t size_bytes);
  /// Reads uncompressed bytes from `offset_bytes` of the entry on, until `into` is full or the
  /// entry ends. Returns the number of bytes read.
  std::size_t read_some(std::size_t entry, std::uint64_t offset_bytes, std::span<std::byte> into);

  /// Updates the CRC-32s of those `entries` (indices) that were mapped in mode write_through. With
  /// `durable`, syncs their bytes before their headers. If the monitor cancels the call, no CRC-32
  /// is updated. Throws Error(io).
  void refresh(std::span<const std::size_t> entries, const RefreshOptions& options);

 private:
  Archive(os::File file, Mode mode);

  void index_folders();
  Buffer copy_of(const codecs::ZipEntry& entry) const;

  std::shared_ptr<os::File> file_;
  os::FileInfo info_;
  Mode mode_;
  MappedZip zip_;
  codecs::ZipDirectory directory_;
  std::unordered_set<std::string_view> folders_;  ///< without a trailing slash
  bool is_one_mapping_ = true;

  std::mutex mutex_;                         ///< guards written_
  std::unordered_set<std::size_t> written_;  ///< entries mapped in mode write_through
};

}  // namespace tenfold::detail::formats::folder
