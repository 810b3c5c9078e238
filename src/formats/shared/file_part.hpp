#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/fail.hpp"
#include "codecs/zip/zip.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// Returns a file that is open for reading. Every call returns the same file, but may open it
/// again. Thread-safe.
using FileOpener = std::function<std::shared_ptr<const os::File>()>;

/// A part of a file, or a whole file.
struct FilePart {
  FileOpener file;
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
  base::Where where{};  ///< for messages

  /// Fills `into` with the bytes from `offset_bytes` of the part on. Throws Error(corrupt) if the
  /// file is too short, and Error(io).
  void read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const {
    file()->read_at(begin + offset_bytes, into);
  }
};

/// Returns the whole file as a FilePart, with its path in `where`. The first overload calls `file`
/// once, to get the size; the second keeps the file open.
FilePart whole_file(FileOpener file);
FilePart whole_file(os::File file);

/// Returns a ZipInput that reads the zip archive in `file` or `part`, which must outlive the
/// ZipInput.
codecs::ZipInput zip_input(const os::File& file);
codecs::ZipInput zip_input(const FilePart& part);

}  // namespace tenfold::detail::formats
