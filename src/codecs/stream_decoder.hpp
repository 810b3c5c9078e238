#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace tenfold::codecs {

/// A streaming decompressor: both input and output are processed piece by piece.
class StreamDecoder {
 public:
  virtual ~StreamDecoder() = default;

  struct Step {
    std::size_t consumed = 0;
    std::size_t produced = 0;
  };
  /// Decodes from the start of `from` to the start of `into`, until either is exhausted. Throws
  /// Error(corrupt) for damaged or differently compressed input.
  virtual Step decode(std::span<const std::byte> from, std::span<std::byte> into) = 0;

  /// True if the input may end here.
  virtual bool is_whole() const noexcept = 0;
};

/// gzip (RFC 1952), any number of members; `where` names the source in messages.
std::unique_ptr<StreamDecoder> gzip_decoder(std::string where);
/// Raw deflate (RFC 1951), as in zip archives.
std::unique_ptr<StreamDecoder> deflate_decoder(std::string where);
/// Zstandard (RFC 8878), any number of frames.
std::unique_ptr<StreamDecoder> zstd_decoder(std::string where);
/// bzip2, any number of streams.
std::unique_ptr<StreamDecoder> bzip2_decoder(std::string where);
/// xz, any number of streams. Error(unsupported) for a stream that needs more than 256 MiB.
std::unique_ptr<StreamDecoder> xz_decoder(std::string where);

}  // namespace tenfold::codecs
