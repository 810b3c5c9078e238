#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <tenfold/io.hpp>

#include "codecs/zip/zip.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// The file or folder at a path, for detecting its format. The file or folder is opened once, and
/// its first bytes and zip directory are read once; the detected format reuses them. Not
/// thread-safe.
class FileHead {
 public:
  /// Number of bytes available for detection.
  static constexpr std::size_t kHeadBytes = 4096;

  /// Throws Error(file_not_found) if nothing is at `path`, and Error(io). Does not open the file or
  /// folder yet.
  FileHead(Path path) : path_(std::move(path)), info_(os::file_info(path_)) {}

  const Path& path() const noexcept { return path_; }
  const os::FileInfo& info() const noexcept { return info_; }
  bool is_file() const noexcept { return info_.is_regular; }
  bool is_folder() const noexcept { return info_.is_directory; }

  /// The file, open for reading; opened by the first call. Requires is_file().
  const os::File& file() const;
  /// Moves the file to the caller. The next call of file() opens it again.
  os::File take_file() const;
  /// The open folder; opened by the first call. Requires is_folder().
  const os::Directory& folder() const;
  /// Moves the folder to the caller. The next call of folder() opens it again.
  os::Directory take_folder() const;
  /// True if the folder contains a regular file `name`; false unless is_folder().
  bool has_file(std::string_view name) const;

  /// The first bytes, at most kHeadBytes; empty unless is_file().
  std::string_view head() const;
  /// The name of the first entry in a zip archive, or the part of the name that is in head(); empty
  /// for other files.
  std::string_view first_zip_name() const;
  /// The result of codecs::read_zip_central_headers() for a zip archive: entries without
  /// data_offset and local_crc32. Null for files that do not begin with a local header, and for
  /// damaged or unsupported archives. Throws Error(io) if reading fails.
  const codecs::ZipDirectory* zip_directory() const;
  /// Moves the result of zip_directory() to the caller. Returns nullopt if zip_directory() was not
  /// called before or returned null.
  std::optional<codecs::ZipDirectory> take_zip_directory() const;

 private:
  Path path_;
  os::FileInfo info_;
  mutable os::File file_;
  mutable os::Directory folder_;
  mutable std::optional<std::string> head_;
  mutable bool has_searched_zip_ = false;
  mutable std::optional<codecs::ZipDirectory> zip_;
};

}  // namespace tenfold::detail::formats
