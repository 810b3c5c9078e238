#include "codecs/stream_decoder.hpp"

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"

namespace tenfold::codecs {
namespace {

[[noreturn]] void fail(const base::Where& where, const char* format, const char* what) {
  throw base::corrupt(where)
      .expected(format, " data")
      .found("damaged or other data (", what, ")")
      .remedy("the file may be damaged");
}

class Inflater final : public StreamDecoder {
 public:
  Inflater(base::Where where, bool is_gzip) : where_(std::move(where)), is_gzip_(is_gzip) {
    constexpr int kRaw = -MAX_WBITS;
    constexpr int kGzip = MAX_WBITS + 16;
    if (inflateInit2(&stream_, is_gzip ? kGzip : kRaw) != Z_OK) throw std::bad_alloc();
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() override { inflateEnd(&stream_); }

  Step decode(std::span<const std::byte> from, std::span<std::byte> into) override {
    constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
    from = from.first(std::min(from.size(), kMost));
    into = into.first(std::min(into.size(), kMost));
    Step step;
    if (ended_ && !begin_next(from, step)) return step;
    // zlib does not write to its input.
    stream_.next_in =
        const_cast<Bytef*>(reinterpret_cast<const Bytef*>(from.data() + step.consumed));
    stream_.avail_in = static_cast<uInt>(from.size() - step.consumed);
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = static_cast<uInt>(into.size());
    begun_ = begun_ || stream_.avail_in > 0;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_MEM_ERROR) throw std::bad_alloc();  // zlib allocates its window late
    if (status == Z_STREAM_END) {
      ended_ = true;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      fail(where_, is_gzip_ ? "gzip" : "deflate", stream_.msg == nullptr ? "?" : stream_.msg);
    }
    step.consumed = from.size() - stream_.avail_in;
    step.produced = into.size() - stream_.avail_out;
    return step;
  }
  bool is_whole() const noexcept override { return ended_ || !begun_; }

 private:
  /// For gzip: skips the zeros that pad the previous member, and starts the next one. For raw
  /// deflate: throws if `from` has bytes, because none may follow. Returns false if no member
  /// starts in `from`.
  bool begin_next(std::span<const std::byte> from, Step& step) {
    if (!is_gzip_) {
      if (!from.empty()) fail(where_, "deflate", "bytes after the end");
      return false;
    }
    while (step.consumed < from.size() && from[step.consumed] == std::byte{0}) ++step.consumed;
    if (step.consumed == from.size()) return false;
    inflateReset(&stream_);
    ended_ = false;
    return true;
  }

  base::Where where_;
  bool is_gzip_;
  z_stream stream_{};
  bool begun_ = false;
  bool ended_ = false;
};

class ZstdDecoder final : public StreamDecoder {
 public:
  explicit ZstdDecoder(base::Where where)
      : where_(std::move(where)), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (!stream_) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  }

  Step decode(std::span<const std::byte> from, std::span<std::byte> into) override {
    ZSTD_inBuffer in = {from.data(), from.size(), 0};
    ZSTD_outBuffer out = {into.data(), into.size(), 0};
    const std::size_t left = ZSTD_decompressStream(stream_.get(), &out, &in);
    if (ZSTD_getErrorCode(left) == ZSTD_error_frameParameter_windowTooLarge) {
      throw base::unsupported(where_)
          .problem("it takes too much memory to decompress")
          .expected("a window of at most ", std::uint64_t{1} << kMaxWindowLog, " bytes")
          .found("a larger one")
          .remedy("compress it with zstd --long=", kMaxWindowLog, " or without --long");
    }
    if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation) throw std::bad_alloc();
    if (ZSTD_isError(left) != 0U) fail(where_, "zstd", ZSTD_getErrorName(left));
    // A result of 0 means that the frame is complete. If the call made no progress, however, the
    // result is only a hint for the size of the next input.
    if (in.pos > 0 || out.pos > 0) is_whole_ = left == 0;
    return {in.pos, out.pos};
  }
  bool is_whole() const noexcept override { return is_whole_; }

 private:
  /// Log2 of the largest window that a frame may declare. The zstd program has the same default
  /// limit. Level 22 uses windows of up to this size.
  static constexpr int kMaxWindowLog = 27;

  base::Where where_;
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
  bool is_whole_ = true;
};

/// The bzip2 decoder needs at most 3.7 MB of memory, whatever the file declares.
class Bzip2Decoder final : public StreamDecoder {
 public:
  explicit Bzip2Decoder(base::Where where) : where_(std::move(where)) { begin(); }
  Bzip2Decoder(const Bzip2Decoder&) = delete;
  Bzip2Decoder& operator=(const Bzip2Decoder&) = delete;
  ~Bzip2Decoder() override { BZ2_bzDecompressEnd(&stream_); }

  Step decode(std::span<const std::byte> from, std::span<std::byte> into) override {
    constexpr std::size_t kMost = std::numeric_limits<unsigned>::max();
    from = from.first(std::min(from.size(), kMost));
    into = into.first(std::min(into.size(), kMost));
    if (ended_) {
      if (from.empty()) return {};
      BZ2_bzDecompressEnd(&stream_);
      begin();
    }
    stream_.next_in = const_cast<char*>(reinterpret_cast<const char*>(from.data()));
    stream_.avail_in = static_cast<unsigned>(from.size());
    stream_.next_out = reinterpret_cast<char*>(into.data());
    stream_.avail_out = static_cast<unsigned>(into.size());
    begun_ = begun_ || !from.empty();
    const int status = BZ2_bzDecompress(&stream_);
    if (status == BZ_MEM_ERROR) throw std::bad_alloc();
    if (status != BZ_OK && status != BZ_STREAM_END) {
      fail(where_, "bzip2", status == BZ_DATA_ERROR_MAGIC ? "invalid header" : "invalid data");
    }
    ended_ = status == BZ_STREAM_END;
    return {from.size() - stream_.avail_in, into.size() - stream_.avail_out};
  }
  bool is_whole() const noexcept override { return ended_ || !begun_; }

 private:
  void begin() {
    stream_ = {};
    ended_ = false;
    if (BZ2_bzDecompressInit(&stream_, 0, 0) != BZ_OK) throw std::bad_alloc();
  }

  base::Where where_;
  bz_stream stream_{};
  bool begun_ = false;
  bool ended_ = false;
};

class XzDecoder final : public StreamDecoder {
 public:
  explicit XzDecoder(base::Where where) : where_(std::move(where)) { begin(); }
  XzDecoder(const XzDecoder&) = delete;
  XzDecoder& operator=(const XzDecoder&) = delete;
  ~XzDecoder() override { lzma_end(&stream_); }

  Step decode(std::span<const std::byte> from, std::span<std::byte> into) override {
    Step step;
    if (ended_) {
      // Another stream may follow, or zeros (stream padding).
      while (step.consumed < from.size() && from[step.consumed] == std::byte{0}) ++step.consumed;
      if (step.consumed == from.size()) return step;
      begin();
    }
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(from.data() + step.consumed);
    stream_.avail_in = from.size() - step.consumed;
    stream_.next_out = reinterpret_cast<std::uint8_t*>(into.data());
    stream_.avail_out = into.size();
    begun_ = begun_ || stream_.avail_in > 0;
    const lzma_ret status = lzma_code(&stream_, LZMA_RUN);
    switch (status) {
      case LZMA_OK:
      case LZMA_BUF_ERROR:  // no progress is possible without more input or output space
        break;
      case LZMA_STREAM_END:
        ended_ = true;
        break;
      case LZMA_MEM_ERROR:
        throw std::bad_alloc();
      case LZMA_MEMLIMIT_ERROR:
        throw base::unsupported(where_)
            .problem("it takes too much memory to decompress")
            .expected("at most ", kMaxMemoryBytes, " bytes")
            .found(lzma_memusage(&stream_))
            .remedy("compress it with xz -9 or a lower level");
      case LZMA_FORMAT_ERROR:
        fail(where_, "xz", "invalid header");
      case LZMA_OPTIONS_ERROR:
        fail(where_, "xz", "unknown options");
      default:
        fail(where_, "xz", "invalid data");
    }
    step.consumed = from.size() - stream_.avail_in;
    step.produced = into.size() - stream_.avail_out;
    return step;
  }
  bool is_whole() const noexcept override { return ended_ || !begun_; }

 private:
  /// Limit of the decoder's memory, most of which is the dictionary that the file declares. Files
  /// that xz -9 wrote need 65 MiB.
  static constexpr std::uint64_t kMaxMemoryBytes = std::uint64_t{256} << 20;

  void begin() {
    ended_ = false;
    if (lzma_stream_decoder(&stream_, kMaxMemoryBytes, 0) != LZMA_OK) throw std::bad_alloc();
  }

  base::Where where_;
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<StreamDecoder> gzip_decoder(base::Where where) {
  return std::make_unique<Inflater>(std::move(where), true);
}
std::unique_ptr<StreamDecoder> deflate_decoder(base::Where where) {
  return std::make_unique<Inflater>(std::move(where), false);
}
std::unique_ptr<StreamDecoder> zstd_decoder(base::Where where) {
  return std::make_unique<ZstdDecoder>(std::move(where));
}
std::unique_ptr<StreamDecoder> bzip2_decoder(base::Where where) {
  return std::make_unique<Bzip2Decoder>(std::move(where));
}
std::unique_ptr<StreamDecoder> xz_decoder(base::Where where) {
  return std::make_unique<XzDecoder>(std::move(where));
}

}  // namespace tenfold::codecs
