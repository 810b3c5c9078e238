#include <libdeflate.h>

#include <tenfold/error.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include <fmt/format.h>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/stream_decoder.hpp"
#include "codecs/zip/crc.hpp"
#include "codecs/zip/entry_start.hpp"
#include "codecs/zip/zip.hpp"

// Reads and inflates the bytes of one entry, and checks them against the entry's CRC-32, except in
// read_zip_entry_unchecked() and read_zip_entry_start().

namespace tenfold::codecs {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20U;

Error fail(const ZipInput& input, const ZipEntry& entry) {
  return base::corrupt(input.where).part("entry ", base::quote(entry.name));
}

void inflate(const ZipInput& input, const ZipEntry& entry, std::span<const std::byte> deflated,
             std::span<std::byte> into) {
  const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> machine(
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
  if (machine == nullptr) throw std::bad_alloc();
  // libdeflate may pass this pointer to memcpy(), so it must not be null.
  std::byte none{};
  std::size_t used = 0;
  std::size_t made = 0;
  const libdeflate_result result = libdeflate_deflate_decompress_ex(
      machine.get(), deflated.data(), deflated.size(), into.empty() ? &none : into.data(),
      into.size(), &used, &made);
  if (result == LIBDEFLATE_INSUFFICIENT_SPACE) {
    throw fail(input, entry)
        .problem("it inflates to more than its declared size")
        .expected(into.size(), " bytes")
        .found("more");
  }
  if (result != LIBDEFLATE_SUCCESS) {
    throw fail(input, entry)
        .problem("it cannot be inflated")
        .expected("deflated bytes")
        .found("other bytes");
  }
  if (made != into.size()) {
    throw fail(input, entry)
        .problem("it inflates to less than its declared size")
        .expected(into.size(), " bytes")
        .found(made);
  }
  if (used != deflated.size()) {
    throw fail(input, entry)
        .problem("bytes follow its deflated data")
        .expected(used, " bytes")
        .found(deflated.size());
  }
}

void read_unchecked(const ZipInput& input, const ZipEntry& entry, std::span<std::byte> into) {
  if (entry.method == ZipMethod::deflated) {
    std::vector<std::byte> deflated(static_cast<std::size_t>(entry.stored_bytes));
    if (!deflated.empty()) input.read(entry.data_offset, deflated);
    inflate(input, entry, deflated, into);
  } else if (!into.empty()) {
    input.read(entry.data_offset, into);
  }
}

/// Throws if the number of inflated bytes differs from the declared size, or if the deflated data
/// is truncated.
void require_whole(const ZipInput& input, const ZipEntry& entry, std::uint64_t num_made,
                   const StreamDecoder& decoder) {
  if (num_made != entry.size_bytes) {
    throw fail(input, entry)
        .problem("it inflates to another size than declared")
        .expected(entry.size_bytes, " bytes")
        .found(num_made > entry.size_bytes ? "more" : std::to_string(num_made));
  }
  if (!decoder.is_whole()) {
    throw fail(input, entry)
        .problem("its deflated data is truncated")
        .expected("a last block")
        .found("none");
  }
}

/// Inflates in chunks, because a small entry can expand to more than the available memory.
void check_inflating(const ZipInput& input, const ZipEntry& entry, const UsePiece& use) {
  const auto decoder = deflate_decoder(input.where.at("entry " + base::quote(entry.name)));
  std::vector<std::byte> deflated(kChunkBytes);
  std::vector<std::byte> inflated(kChunkBytes);
  std::uint64_t num_read = 0;
  std::uint64_t num_made = 0;
  std::uint32_t found = 0;
  std::span<const std::byte> waiting;
  while (true) {
    if (waiting.empty() && num_read < entry.stored_bytes) {
      const auto size = static_cast<std::size_t>(
          std::min<std::uint64_t>(entry.stored_bytes - num_read, kChunkBytes));
      input.read(entry.data_offset + num_read, std::span(deflated).first(size));
      num_read += size;
      waiting = std::span(deflated).first(size);
    }
    const StreamDecoder::Step step = decoder->decode(waiting, inflated);
    if (step.consumed == 0 && step.produced == 0) break;
    waiting = waiting.subspan(step.consumed);
    num_made += step.produced;
    if (num_made > entry.size_bytes) break;
    const auto piece = std::span(inflated).first(step.produced);
    found = crc32(piece, found);
    if (use) use(piece);
  }
  require_whole(input, entry, num_made, *decoder);
  require_crc32(input, entry, found);
}

}  // namespace

ZipInput zip_input(base::Where where, std::span<const std::byte> bytes) {
  return {std::move(where), bytes.size(), [bytes](std::uint64_t offset, std::span<std::byte> into) {
            std::memcpy(into.data(), bytes.data() + offset, into.size());
          }};
}

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  if (bytes.empty()) return before;
  return libdeflate_crc32(before, bytes.data(), bytes.size());
}

std::vector<std::byte> read_zip_entry(const ZipInput& input, const ZipEntry& entry) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.size_bytes));
  read_zip_entry(input, entry, bytes);
  return bytes;
}

std::vector<std::byte> read_zip_entry_unchecked(const ZipInput& input, const ZipEntry& entry) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(entry.size_bytes));
  read_unchecked(input, entry, bytes);
  return bytes;
}

void read_zip_entry(const ZipInput& input, const ZipEntry& entry, std::span<std::byte> into) {
  read_unchecked(input, entry, into);
  require_crc32(input, entry, crc32(into));
}

std::vector<std::byte> read_zip_entry_start(const ZipInput& input, const ZipEntry& entry,
                                            std::size_t max_bytes) {
  const auto wanted = static_cast<std::size_t>(
      std::min<std::uint64_t>(std::min(max_bytes, kMaxZipStartBytes), entry.size_bytes));
  std::vector<std::byte> start(wanted);
  if (entry.method == ZipMethod::stored) {
    if (wanted > 0) input.read(entry.data_offset, start);
    return start;
  }
  // Use zlib here: libdeflate needs all deflated bytes at once, and if a match or stored block does
  // not fit into the output, libdeflate writes no part of it. The extra output byte detects data
  // beyond the declared size.
  start.resize(wanted + 1);
  const auto decoder = deflate_decoder(input.where.at("entry " + base::quote(entry.name)));
  std::vector<std::byte> deflated(
      static_cast<std::size_t>(std::min<std::uint64_t>(entry.stored_bytes, kMaxZipStartBytes)));
  std::uint64_t num_read = 0;
  std::size_t num_made = 0;
  std::span<const std::byte> waiting;
  while (num_made < start.size()) {
    if (waiting.empty() && num_read < entry.stored_bytes) {
      const auto size = static_cast<std::size_t>(
          std::min<std::uint64_t>(entry.stored_bytes - num_read, deflated.size()));
      input.read(entry.data_offset + num_read, std::span(deflated).first(size));
      num_read += size;
      waiting = std::span(deflated).first(size);
    }
    const StreamDecoder::Step step = decoder->decode(waiting, std::span(start).subspan(num_made));
    if (step.consumed == 0 && step.produced == 0) break;
    waiting = waiting.subspan(step.consumed);
    num_made += step.produced;
  }
  // If the entry continues after the start, its declared size cannot be checked.
  const bool is_end = num_made < start.size() || wanted == entry.size_bytes;
  if (is_end) require_whole(input, entry, num_made, *decoder);
  start.resize(wanted);
  return start;
}

void require_crc32(const ZipInput& input, const ZipEntry& entry, std::uint32_t found) {
  if (found == entry.crc32) return;
  throw fail(input, entry)
      .problem("its bytes are damaged")
      .expected("CRC-32 ", fmt::format("{:08x}", entry.crc32))
      .found(fmt::format("{:08x}", found));
}

void check_zip_entry(const ZipInput& input, const ZipEntry& entry, const UsePiece& use) {
  // Inflate a deflated entry in one call, which is twice as fast, if neither its stored nor its
  // inflated size exceeds 64 MiB.
  constexpr std::uint64_t kMaxBytesAtOnce = std::uint64_t{64} << 20U;
  if (entry.method == ZipMethod::deflated) {
    if (std::max(entry.size_bytes, entry.stored_bytes) > kMaxBytesAtOnce) {
      return check_inflating(input, entry, use);
    }
    const std::vector<std::byte> bytes = read_zip_entry(input, entry);
    if (use) use(bytes);
    return;
  }
  std::vector<std::byte> chunk(
      static_cast<std::size_t>(std::min<std::uint64_t>(entry.stored_bytes, kChunkBytes)));
  std::uint32_t found = 0;
  for (std::uint64_t at = 0; at < entry.stored_bytes; at += chunk.size()) {
    const auto size =
        static_cast<std::size_t>(std::min<std::uint64_t>(entry.stored_bytes - at, chunk.size()));
    const std::span<std::byte> part(chunk.data(), size);
    input.read(entry.data_offset + at, part);
    found = crc32(part, found);
    if (use) use(part);
  }
  require_crc32(input, entry, found);
}

}  // namespace tenfold::codecs
