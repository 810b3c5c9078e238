#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/fail.hpp"

namespace tenfold::codecs {

/// A streaming decompressor: both input and output are processed piece by piece.
class StreamDecoder {
 public:
  virtual ~StreamDecoder() = default;

  struct Step {
    std::size_t consumed = 0;
    std::size_t produced = 0;
  };
  /// Decodes `from` into `into`. Stops when either is exhausted or when a stream ends, and may stop
  /// earlier. Returns the numbers of bytes consumed and produced. Throws Error(corrupt) for damaged
  /// data or data in another format. Throws Error(unsupported) if zstd or xz data exceeds the
  /// memory limit of its decoder, and std::bad_alloc for lack of memory.
  virtual Step decode(std::span<const std::byte> from, std::span<std::byte> into) = 0;

  /// True if the input so far is empty, or ends at the end of a stream (or gzip member, or zstd
  /// frame) or in the zeros that follow it as padding.
  virtual bool is_whole() const noexcept = 0;
};

/// gzip (RFC 1952), of any number of members. `where` names the source in messages.
std::unique_ptr<StreamDecoder> gzip_decoder(base::Where where);
/// Raw deflate (RFC 1951), as in zip archives: one stream, after which no bytes may follow.
std::unique_ptr<StreamDecoder> deflate_decoder(base::Where where);
/// Zstandard (RFC 8878), of any number of frames. Throws Error(unsupported) for a frame with a
/// window of more than 128 MiB.
std::unique_ptr<StreamDecoder> zstd_decoder(base::Where where);
/// bzip2, of any number of streams.
std::unique_ptr<StreamDecoder> bzip2_decoder(base::Where where);
/// xz, of any number of streams. Throws Error(unsupported) for a stream that takes more than
/// 256 MiB of memory to decompress.
std::unique_ptr<StreamDecoder> xz_decoder(base::Where where);

}  // namespace tenfold::codecs
