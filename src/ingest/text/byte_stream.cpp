#include "ingest/text/byte_stream.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/stream_decoder.hpp"
#include "formats/shared/file_part.hpp"

namespace tenfold {
namespace {

constexpr std::size_t kPackedBytes = std::size_t{256} << 10;

/// Reads a file, or a part of one.
class FileStream final : public ByteStream {
 public:
  explicit FileStream(const Path& path) : own_(os::File::open_read(path)), file_(&own_) {}
  FileStream(const os::File& file, std::uint64_t begin, std::uint64_t size_bytes)
      : file_(&file), begin_(begin), size_bytes_(size_bytes) {}

  std::size_t read(std::span<std::byte> into) override {
    const std::uint64_t left = size_bytes_ - done_;
    if (left < into.size()) into = into.first(static_cast<std::size_t>(left));
    const std::size_t count = file_->read_some_at(begin_ + done_, into);
    done_ += count;
    return count;
  }
  std::uint64_t num_read() const override { return done_; }
  const std::string& display() const { return file_->display(); }

 private:
  os::File own_;
  const os::File* file_;
  std::uint64_t begin_ = 0;
  std::uint64_t size_bytes_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t done_ = 0;
};

/// Decompresses another stream.
class DecodedStream final : public ByteStream {
 public:
  DecodedStream(std::unique_ptr<ByteStream> packed, std::unique_ptr<codecs::StreamDecoder> decoder,
                base::Where where)
      : packed_(std::move(packed)),
        decoder_(std::move(decoder)),
        where_(std::move(where)),
        buffer_(kPackedBytes) {}

  std::size_t read(std::span<std::byte> into) override {
    std::size_t filled = 0;
    while (filled < into.size()) {
      if (rest_.empty() && !at_end_) {
        rest_ = std::span<const std::byte>(buffer_).first(packed_->read(buffer_));
        at_end_ = rest_.empty();
      }
      const auto step = decoder_->decode(rest_, into.subspan(filled));
      rest_ = rest_.subspan(step.consumed);
      filled += step.produced;
      if (step.consumed > 0 || step.produced > 0 || !at_end_) continue;
      if (!decoder_->is_whole()) {
        throw base::corrupt(where_)
            .expected("more compressed bytes")
            .found("the end of the file")
            .remedy("it may be truncated");
      }
      break;
    }
    return filled;
  }
  std::uint64_t num_read() const override { return packed_->num_read(); }

 private:
  std::unique_ptr<ByteStream> packed_;
  std::unique_ptr<codecs::StreamDecoder> decoder_;
  base::Where where_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> rest_;  ///< unread part of the buffer
  bool at_end_ = false;
};

/// An entry of an archive. Checks its size and CRC-32.
class ZipEntryStream final : public ByteStream {
 public:
  ZipEntryStream(std::shared_ptr<const ZipFile> zip, std::size_t number)
      : zip_(std::move(zip)), entry_(zip_->directory.entries.at(number)) {
    auto bytes = std::make_unique<FileStream>(zip_->file, entry_.data_offset, entry_.stored_bytes);
    if (entry_.method == codecs::ZipMethod::stored) {
      bytes_ = std::move(bytes);
    } else {
      bytes_ = std::make_unique<DecodedStream>(std::move(bytes), codecs::deflate_decoder(where()),
                                               where());
    }
  }

  std::size_t read(std::span<std::byte> into) override {
    const std::size_t count = bytes_->read(into);
    crc32_ = codecs::crc32(into.first(count), crc32_);
    done_ += count;
    const bool at_end = count < into.size();
    if (done_ > entry_.size_bytes ||
        (at_end && (done_ != entry_.size_bytes || crc32_ != entry_.crc32))) {
      throw base::corrupt(where())
          .expected(entry_.size_bytes, " bytes with the CRC-32 in the archive's directory")
          .found("other bytes")
          .remedy("the archive is damaged");
    }
    return count;
  }
  std::uint64_t num_read() const override { return bytes_->num_read(); }

 private:
  base::Where where() const { return {zip_->file.display(), "entry " + base::quote(entry_.name)}; }

  std::shared_ptr<const ZipFile> zip_;
  const codecs::ZipEntry& entry_;
  std::unique_ptr<ByteStream> bytes_;
  std::uint32_t crc32_ = 0;
  std::uint64_t done_ = 0;
};

struct Compression {
  std::string_view suffix;
  std::unique_ptr<codecs::StreamDecoder> (*decoder)(base::Where where);
};
constexpr std::array<Compression, 4> kCompressions = {{{".gz", codecs::gzip_decoder},
                                                       {".zst", codecs::zstd_decoder},
                                                       {".bz2", codecs::bzip2_decoder},
                                                       {".xz", codecs::xz_decoder}}};

}  // namespace

std::string_view packed_suffix(std::string_view name) noexcept {
  for (const Compression& known : kCompressions) {
    if (name.size() < known.suffix.size()) continue;
    const std::string_view end = name.substr(name.size() - known.suffix.size());
    const bool is_same = std::ranges::equal(end, known.suffix, [](char c, char lower) {
      return c == lower || (c >= 'A' && c <= 'Z' && c - 'A' + 'a' == lower);
    });
    if (is_same) return known.suffix;
  }
  return {};
}

std::unique_ptr<ByteStream> open_byte_stream(const Path& path) {
  auto file = std::make_unique<FileStream>(path);
  const std::string where = file->display();
  const std::string_view suffix = packed_suffix(path.filename().string());
  const auto* known = std::ranges::find(kCompressions, suffix, &Compression::suffix);
  if (known == kCompressions.end()) return file;
  return std::make_unique<DecodedStream>(std::move(file), known->decoder(where), where);
}

std::shared_ptr<const ZipFile> open_zip_file(const Path& path) {
  auto zip = std::make_shared<ZipFile>();
  zip->file = os::File::open_read(path);
  // The default limits allow any total size of the entries, which is safe because entries are
  // streamed.
  zip->directory =
      codecs::read_zip_directory(detail::formats::zip_input(zip->file), codecs::ZipLimits());
  return zip;
}

std::unique_ptr<ByteStream> open_zip_entry(std::shared_ptr<const ZipFile> zip, std::size_t number) {
  return std::make_unique<ZipEntryStream>(std::move(zip), number);
}

}  // namespace tenfold
