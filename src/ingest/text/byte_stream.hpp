#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <tenfold/io.hpp>

#include "codecs/zip/zip.hpp"
#include "os/fs/file.hpp"

namespace tenfold {

/// A sequential source of bytes.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Reads the next into.size() bytes, fewer only at the end. Returns the number of bytes read.
  virtual std::size_t read(std::span<std::byte> into) = 0;
  /// Number of bytes of the underlying file read so far.
  virtual std::uint64_t num_read() const = 0;
};

/// The compression suffix of `name`, compared case-insensitively: ".gz", ".zst", ".bz2" or ".xz";
/// empty if there is none.
std::string_view packed_suffix(std::string_view name) noexcept;

/// Opens a file, and decompresses it according to the last suffix of its name. Reading throws
/// Error(corrupt) for damaged data.
std::unique_ptr<ByteStream> open_byte_stream(const Path& path);

/// A zip archive whose entries can be streamed.
struct ZipFile {
  os::File file;
  codecs::ZipDirectory directory;
};
/// Opens an archive. Throws the errors of codecs::read_zip_directory().
std::shared_ptr<const ZipFile> open_zip_file(const Path& path);

/// Streams the entry with the index `number`. Checks its size and CRC-32 at the end.
std::unique_ptr<ByteStream> open_zip_entry(std::shared_ptr<const ZipFile> zip, std::size_t number);

}  // namespace tenfold
