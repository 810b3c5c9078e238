#pragma once

#include <array>
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
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {

struct RefreshOptions {
  bool durable = false;  ///< wait for the device
  int num_threads = 0;
  Monitor* monitor = nullptr;
};

/// A `.tdz`: a zip archive whose entries are the files of a memory-mapped folder, under their paths
/// below it. Stored entries are mapped where they lie, by one mapping of the file; deflated ones
/// are inflated when they are first used. Thread-safe.
///
/// Opened for write_through it holds a shared lock on the file. What is written through leaves the
/// CRC-32 of its entry behind; refresh() makes it right, and so does the destructor, which the
/// tensors that are mapped put off. A kill before that leaves a whole archive whose CRC-32 of the
/// changed entries is wrong, which verify reports; opening it "r+" and closing it makes them right.
class Archive : public std::enable_shared_from_this<Archive> {
 public:
  /// Reads the directory. Throws Error(corrupt), Error(unsupported) as read_zip_directory does.
  static std::shared_ptr<Archive> open(const Path& path, Mode mode);
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  ~Archive();

  const os::File& file() const noexcept { return file_; }
  const os::FileInfo& info() const noexcept { return info_; }
  const std::vector<codecs::ZipEntry>& entries() const noexcept { return directory_.entries; }
  const codecs::ZipDirectory& directory() const noexcept { return directory_; }
  codecs::ZipInput input() const;

  /// The number of the entry of that name.
  std::optional<std::size_t> find(std::string_view path) const;
  /// True if an entry lies below that path, or is this folder.
  bool has_folder(std::string_view path) const;

  /// True if every tensor can be mapped.
  bool is_one_mapping() const noexcept { return is_one_mapping_; }

  /// The first `size_bytes` bytes of an entry: mapped, or in memory of their own. Throws
  /// Error(unsupported) for write_through of an entry that cannot be mapped.
  Buffer map(std::size_t entry, std::uint64_t size_bytes);
  /// Bytes from `offset_bytes` on, as many as there are, but at most `into`. Returns their number.
  std::size_t read_some(std::size_t entry, std::uint64_t offset_bytes, std::span<std::byte> into);

  /// Makes the CRC-32s of those of the entries right that were mapped for write_through. With
  /// `durable` their bytes go to the device before their headers. What the monitor stops is made
  /// right by the next one.
  void refresh(std::span<const std::size_t> entries, const RefreshOptions& options);

 private:
  Archive(os::File file, Mode mode);

  struct Inflated {
    std::size_t entry = 0;
    Buffer bytes;
  };
  static constexpr std::size_t kKeptInflated = 4;
  static constexpr std::size_t kStripes = 16;

  void index_folders();
  Buffer mapping_of_file();
  Buffer copy_of(std::size_t entry) const;
  Buffer inflated(std::size_t entry);
  std::optional<Buffer> kept(std::size_t entry);

  os::File file_;
  os::FileInfo info_;
  Mode mode_;
  codecs::ZipDirectory directory_;
  std::unordered_set<std::string_view> folders_;  ///< without a slash at their end
  bool is_one_mapping_ = true;

  std::mutex mutex_;  ///< guards what follows
  Buffer mapping_;
  std::unordered_set<std::size_t> written_;  ///< mapped for write_through
  std::array<Inflated, kKeptInflated> kept_;
  std::size_t next_kept_ = 0;

  std::array<std::mutex, kStripes> inflating_;  ///< so that no entry is inflated twice at a time
};

}  // namespace tenfold::detail::formats::folder
