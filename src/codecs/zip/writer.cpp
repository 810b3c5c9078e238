#include "codecs/zip/writer.hpp"

#include <bit>
#include <cstring>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "codecs/zip/records.hpp"
#include "codecs/zip/structure.hpp"

namespace tenfold::codecs {
namespace {

constexpr std::uint64_t kVersionPlain = 20;  // deflate, folders
constexpr std::uint64_t kVersionZip64 = 45;
constexpr std::uint64_t kUnix = 3U << 8U;  // the system that made the archive: defines what
                                           // the attributes mean
constexpr std::uint64_t kReadableFile = 0100644U << 16U;
constexpr std::uint64_t kFirstDate = 0x0021;  // 1980-01-01; the earliest date of the format
constexpr std::size_t kExtraHeadBytes = 4;
constexpr std::size_t kLocalZip64Bytes = kExtraHeadBytes + 16;
constexpr ZipLimits kLimits;                  // of the reader
constexpr std::string_view kFillerId = "FB";  // extra field for padding, as in torch's archives

class Record {
 public:
  explicit Record(std::size_t size = 0) { bytes_.reserve(size); }
  /// Appends the low `size` bytes of `value`: zip archives are little-endian, like the machine.
  Record& put(std::uint64_t value, std::size_t size) {
    static_assert(std::endian::native == std::endian::little);
    bytes_.append(reinterpret_cast<const char*>(&value), size);
    return *this;
  }
  Record& put(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  Record& fill(std::size_t size, char with) {
    bytes_.append(size, with);
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

bool needs_wide_sizes(const ZipItem& item) {
  return item.size_bytes >= kFull32 || item.stored_bytes >= kFull32;
}

/// The size of a local header without padding.
std::uint64_t bare_header_bytes(const ZipItem& item) {
  return kLocalBytes + item.name.size() + (needs_wide_sizes(item) ? kLocalZip64Bytes : 0);
}

std::uint64_t method_of(const ZipItem& item) { return item.method == ZipMethod::stored ? 0 : 8; }

[[noreturn]] void refuse(const ZipItem& item, std::string_view what, const std::string& expected,
                         const std::string& found) {
  throw base::invalid_argument()
      .part("zip: entry ", base::quote(item.name))
      .problem(what)
      .expected(expected)
      .found(found);
}

[[noreturn]] void refuse_size(std::string_view what, std::uint64_t most, std::string_view unit) {
  throw base::unsupported()
      .part("zip")
      .problem(what, " is too large for tenfold to open the archive")
      .expected("at most ", most, unit)
      .found("more")
      .remedy("save as a folder");
}

void require_valid(const ZipItem& item) {
  if (const auto fault = zip_name_fault(item.name)) {
    refuse(item, "its name " + std::string(*fault), "a relative path in UTF-8",
           base::quote(item.name));
  }
  if (item.name.size() > kFull16) {
    refuse(item, "its name is too long", "at most 65535 bytes", std::to_string(item.name.size()));
  }
  if (item.comment.size() > kFull16) {
    refuse(item, "its comment is too long", "at most 65535 bytes",
           std::to_string(item.comment.size()));
  }
  if (!std::has_single_bit(item.alignment) || item.alignment > kMaxZipAlignment) {
    refuse(item, "its alignment", "a power of two up to " + std::to_string(kMaxZipAlignment),
           std::to_string(item.alignment));
  }
}

/// A central header with 0 as its CRC-32.
std::string central_header(const ZipItem& item, std::uint64_t header_offset) {
  Record zip64;
  const bool wide = needs_wide_sizes(item);
  const bool far = header_offset >= kFull32;
  if (wide || far) {
    zip64.put(kZip64Extra, 2).put((wide ? 16U : 0U) + (far ? 8U : 0U), 2);
    if (wide) zip64.put(item.size_bytes, 8).put(item.stored_bytes, 8);
    if (far) zip64.put(header_offset, 8);
  }
  const std::string extra = zip64.take();
  const std::uint64_t version = extra.empty() ? kVersionPlain : kVersionZip64;
  return Record(kCentralBytes + item.name.size() + extra.size() + item.comment.size())
      .put(kCentralSignature, 4)
      .put(kUnix | version, 2)
      .put(version, 2)
      .put(kUtf8Flag, 2)
      .put(method_of(item), 2)
      .put(0, 2)
      .put(kFirstDate, 2)
      .put(0, kCrcBytes)
      .put(wide ? kFull32 : item.stored_bytes, 4)
      .put(wide ? kFull32 : item.size_bytes, 4)
      .put(item.name.size(), 2)
      .put(extra.size(), 2)
      .put(item.comment.size(), 2)
      .put(0, 2)  // disk
      .put(0, 2)  // internal attributes
      .put(kReadableFile, 4)
      .put(far ? kFull32 : header_offset, 4)
      .put(item.name)
      .put(extra)
      .put(item.comment)
      .take();
}

/// Returns the end records that follow a directory of `bytes` bytes at `offset`, without the
/// archive comment.
std::string end_records(std::uint64_t entries, std::uint64_t bytes, std::uint64_t offset) {
  Record record;
  const bool wide = entries >= kFull16 || bytes >= kFull32 || offset >= kFull32;
  if (wide) {
    record.put(kZip64EndSignature, 4)
        .put(kZip64EndBytes - 12, 8)
        .put(kUnix | kVersionZip64, 2)
        .put(kVersionZip64, 2)
        .put(0, 4)
        .put(0, 4)
        .put(entries, 8)
        .put(entries, 8)
        .put(bytes, 8)
        .put(offset, 8);
    record.put(kZip64LocatorSignature, 4).put(0, 4).put(offset + bytes, 8).put(1, 4);
  }
  const std::uint64_t entries_field = entries >= kFull16 ? kFull16 : entries;
  record.put(kEndSignature, 4)
      .put(0, 2)
      .put(0, 2)
      .put(entries_field, 2)
      .put(entries_field, 2)
      .put(bytes >= kFull32 ? kFull32 : bytes, 4)
      .put(offset >= kFull32 ? kFull32 : offset, 4)
      .put(kZipStructureCommentBytes, 2);
  return record.take();
}

}  // namespace

ZipLayout::ZipLayout(std::vector<ZipItem> items) : items_(std::move(items)) {
  std::unordered_set<std::string_view> names;
  names.reserve(items_.size());
  places_.reserve(items_.size());
  for (const ZipItem& item : items_) {
    place(item);
    if (!names.insert(item.name).second) refuse(item, "its name is duplicated", "one", "two");
  }
}

void ZipLayout::add(ZipItem item) {
  place(item);
  items_.push_back(std::move(item));
}

void ZipLayout::place(const ZipItem& item) {
  require_valid(item);
  if (places_.size() >= kLimits.max_entries) {
    refuse_size("the number of entries", kLimits.max_entries, "");
  }
  Place place;
  place.header = directory_offset_;
  place.data = place.header + bare_header_bytes(item);
  if (item.alignment > 1) {
    place.data = base::align_up(place.data + kExtraHeadBytes, item.alignment);
  }
  places_.push_back(place);
  directory_offset_ = place.data + item.stored_bytes;
}

std::string ZipLayout::local_header(std::size_t item, std::uint32_t crc32) const {
  const ZipItem& of = items_[item];
  const Place& place = places_[item];
  const bool wide = needs_wide_sizes(of);
  const std::uint64_t extra_bytes = place.data - place.header - kLocalBytes - of.name.size();
  Record record(static_cast<std::size_t>(place.data - place.header));
  record.put(kLocalSignature, 4)
      .put(wide ? kVersionZip64 : kVersionPlain, 2)
      .put(kUtf8Flag, 2)
      .put(method_of(of), 2)
      .put(0, 2)
      .put(kFirstDate, 2)
      .put(crc32, 4)
      .put(wide ? kFull32 : of.stored_bytes, 4)
      .put(wide ? kFull32 : of.size_bytes, 4)
      .put(of.name.size(), 2)
      .put(extra_bytes, 2)
      .put(of.name);
  if (wide) {
    record.put(kZip64Extra, 2).put(16, 2).put(of.size_bytes, 8).put(of.stored_bytes, 8);
  }
  const std::uint64_t filler_bytes = extra_bytes - (wide ? kLocalZip64Bytes : 0);
  if (filler_bytes > 0) {
    const auto size = static_cast<std::size_t>(filler_bytes) - kExtraHeadBytes;
    record.put(kFillerId).put(size, 2).fill(size, 'Z');
  }
  return record.take();
}

std::string ZipLayout::directory(std::span<const std::uint32_t> crc32s) const {
  // Hash the headers as zip_structure_checksum() does: with zeros in the place of CRC-32s.
  base::Xxh3Stream structure;
  std::string bytes;
  std::vector<std::size_t> headers;
  headers.reserve(items_.size());
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const std::string local = local_header(i, 0);
    structure.update(std::as_bytes(std::span(local)));
    headers.push_back(bytes.size());
    bytes += central_header(items_[i], places_[i].header);
  }
  if (bytes.size() > kLimits.max_directory_bytes) {
    refuse_size("the directory", kLimits.max_directory_bytes, " bytes");
  }
  bytes += end_records(items_.size(), bytes.size(), directory_offset_);
  structure.update(std::as_bytes(std::span(bytes)));
  for (std::size_t i = 0; i < items_.size(); ++i) {
    std::memcpy(bytes.data() + headers[i] + kCentralCrcAt, &crc32s[i], kCrcBytes);
  }
  return bytes += zip_structure_comment(structure.digest());
}

}  // namespace tenfold::codecs
