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

struct RefreshOptions {
  bool durable = false;  ///< make the result durable
  int num_threads = 0;
  Monitor* monitor = nullptr;
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
  /// Reads the directory. In mode write_through, also disables the checksums of tensors in the
  /// entry `%checksums`. Throws like read_zip_directory(), and in that mode like
  /// open_write_through() and drop_leaf_checksums().
  static std::shared_ptr<Archive> open(const Path& path, Mode mode);
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  ~Archive();

  const os::File& file() const noexcept { return *file_; }
  const os::FileInfo& info() const noexcept { return info_; }
  const std::vector<codecs::ZipEntry>& entries() const noexcept { return directory_.entries; }
  const codecs::ZipDirectory& directory() const noexcept { return directory_; }
  codecs::ZipInput input() const { return zip_.input(); }

  /// Returns the index of the file entry with that name.
  std::optional<std::size_t> find(std::string_view path) const;
  /// True if `path` is a folder entry, or contains an entry.
  bool has_folder(std::string_view path) const;

  /// True if the entries of all tensors (is_leaf_file()) can be mapped.
  bool is_one_mapping() const noexcept { return is_one_mapping_; }

  /// Returns the first `size_bytes` bytes of an entry, mapped or in memory. In mode write_through,
  /// throws Error(unsupported) for an entry that is deflated, not aligned, or has a data
  /// descriptor.
  Buffer map(std::size_t entry, std::uint64_t size_bytes);
  /// Reads from `offset_bytes` until `into` is full or the entry ends. Returns the number of bytes.
  std::size_t read_some(std::size_t entry, std::uint64_t offset_bytes, std::span<std::byte> into);

  /// Updates the CRC-32s of those `entries` that were mapped in mode write_through. With `durable`,
  /// syncs their bytes before their headers. If the monitor cancels the call, no CRC-32 is updated.
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

  std::mutex mutex_;
  std::unordered_set<std::size_t> written_;  ///< mapped in mode write_through; guarded by mutex_
};

}  // namespace tenfold::detail::formats::folder
