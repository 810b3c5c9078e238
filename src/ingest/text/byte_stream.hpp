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

/// Bytes that come one after the other.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Fills `into` from its start; fewer bytes than fit only at the end.
  virtual std::size_t read(std::span<std::byte> into) = 0;
  /// Bytes of the file that were read so far.
  virtual std::uint64_t num_read() const = 0;
};

/// ".gz", ".zst", ".bz2" or ".xz" of a name that ends in it, in any case; empty of another.
std::string_view packed_suffix(std::string_view name) noexcept;

/// The bytes of a file as they are, or as such a file holds them, by the last suffix of its name.
/// Reading throws Error(corrupt) for damage.
std::unique_ptr<ByteStream> open_byte_stream(const Path& path);

/// A zip archive of which entries are streamed.
struct ZipFile {
  os::File file;
  codecs::ZipDirectory directory;
};
/// Throws Error(corrupt), Error(unsupported) as codecs::read_zip_directory() does.
std::shared_ptr<const ZipFile> open_zip_file(const Path& path);

/// The bytes of the entry with that number; at their end their CRC-32 is checked.
std::unique_ptr<ByteStream> open_zip_entry(std::shared_ptr<const ZipFile> zip, std::size_t number);

}  // namespace tenfold
