#include "codecs/zip/zip.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "codecs/zip/records.hpp"

// Reads the directory of a zip archive: the end records at the end of the file, then the central
// headers, then the local headers. entry.cpp reads the bytes of entries.

namespace tenfold::codecs {
namespace {

/// Maximum gap between local headers that are read in one call. Thus one call reads the headers of
/// many small entries, and the bytes of large entries are not read.
constexpr std::uint64_t kMaxGapBytes = 4096;
constexpr std::uint64_t kWindowBytes = 65536;
/// Size that the extra fields of most entries do not exceed: the zip64 field, and padding that
/// aligns the entry's bytes to a multiple of 64.
constexpr std::uint64_t kUsualExtraBytes = 96;

/// Uses a random seed, so that a hostile file cannot contain names that all collide.
std::uint64_t hash_of(std::string_view name) {
  return base::xxh3_seeded(std::as_bytes(std::span(name)), base::hash_seed());
}

/// The part of a hash that the table stores: bits that do not determine the slot.
std::uint32_t tag_of(std::uint64_t hash) noexcept {
  return static_cast<std::uint32_t>(hash >> 32U);
}

std::string_view method_name(std::uint64_t method) noexcept {
  switch (method) {
    case 9:
      return " (deflate64)";
    case 12:
      return " (bzip2)";
    case 14:
      return " (lzma)";
    case 93:
      return " (zstandard)";
    default:
      return "";
  }
}

}  // namespace

/// Location of the central headers.
struct ZipEnd {
  std::uint64_t entries = 0;
  std::uint64_t directory_bytes = 0;
  std::uint64_t directory_offset = 0;
  std::uint64_t directory_end = 0;  ///< offset of the first end record
  std::string comment;
};

using ZipNames = decltype(ZipDirectory::names);

/// Reads the end records, the central headers and the local headers of one archive.
class ZipDirectoryReader {
 public:
  ZipDirectoryReader(const ZipInput& input, const ZipLimits& limits)
      : input_(input), limits_(limits) {}

  ZipDirectory read_central_headers();
  void read_local_headers(ZipDirectory& directory);
  void read_local_header(ZipEntry& entry, std::uint64_t limit);

 private:
  Error corrupt() const { return base::corrupt(input_.where); }
  Error corrupt(const ZipEntry& entry) const { return base::corrupt(place_of(entry)); }
  Error unsupported() const { return base::unsupported(input_.where); }
  Error unsupported(const ZipEntry& entry) const { return base::unsupported(place_of(entry)); }
  base::Where place_of(const ZipEntry& entry) const {
    return input_.where.at("entry " + base::quote(entry.name));
  }

  std::string bytes_at(std::uint64_t offset, std::size_t size) const {
    std::string bytes(size, '\0');
    if (size > 0) input_.read(offset, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  ZipEnd read_end() const;
  void read_zip64_end(ZipEnd& end, std::uint64_t record_at) const;
  std::string directory_text(const ZipEnd& end) const;
  template <class Use>
  void for_each_central(std::string_view text, std::uint64_t entries, const Use& use) const;
  std::vector<ZipEntry> read_centrals(const ZipEnd& end) const;
  ZipEntry parse_central(std::string_view header) const;
  void apply_zip64(ZipEntry& entry, std::string_view extra, std::uint64_t disk) const;
  std::optional<std::string_view> zip64_extra(const ZipEntry& entry, std::string_view extra) const;
  void require_safe_name(const ZipEntry& entry) const;
  ZipNames index_names(const std::vector<ZipEntry>& entries) const;
  void refuse_bombs(const std::vector<ZipEntry>& entries) const;
  std::string_view near_headers(std::uint64_t offset, std::size_t size);
  void read_window(std::uint64_t offset, std::size_t size);
  void read_local(ZipEntry& entry);
  void compare_local_sizes(const ZipEntry& entry, std::string_view local) const;
  std::uint64_t descriptor_bytes(const ZipEntry& entry, std::uint64_t next);
  void require_end(const ZipEntry& entry, std::uint64_t next);

  const ZipInput& input_;
  const ZipLimits& limits_;

  // Used to read local headers.
  std::uint64_t limit_ = 0;       ///< offset of the directory, by which all entries must end
  std::vector<ZipEntry*> order_;  ///< by header_offset
  std::size_t next_ = 0;          ///< index in `order_` of the first header beyond the window
  std::uint64_t window_at_ = 0;
  std::string_view window_;  ///< the part of window_memory_ that was read
  std::unique_ptr<char[]> window_memory_;
  std::size_t window_capacity_ = 0;
};

// --- the end record and the zip64 end record, which locate the central headers ---

ZipEnd ZipDirectoryReader::read_end() const {
  const std::uint64_t tail_bytes = std::min<std::uint64_t>(input_.size_bytes, kEndBytes + kFull16);
  const std::uint64_t tail_at = input_.size_bytes - tail_bytes;
  const std::string tail = bytes_at(tail_at, static_cast<std::size_t>(tail_bytes));
  const std::size_t at = tail.size() < kEndBytes
                             ? std::string::npos
                             : tail.rfind("PK\x05\x06", tail.size() - kEndBytes);
  if (at == std::string::npos) {
    throw corrupt()
        .problem("no end record at the end of the file")
        .remedy("the file may be truncated");
  }
  const std::string_view record = std::string_view(tail).substr(at);
  const std::uint64_t comment_bytes = little(record, 20, 2);
  if (record.size() - kEndBytes != comment_bytes) {
    throw corrupt()
        .part("end record")
        .problem("does not reach to the end of the file")
        .expected("a comment of ", comment_bytes, " bytes")
        .found(record.size() - kEndBytes);
  }
  ZipEnd end;
  end.comment = record.substr(kEndBytes);
  end.entries = little(record, 10, 2);
  end.directory_bytes = little(record, 12, 4);
  end.directory_offset = little(record, 16, 4);
  end.directory_end = tail_at + at;
  read_zip64_end(end, tail_at + at);
  if (little(record, 4, 2) != 0 || little(record, 6, 2) != 0 ||
      little(record, 8, 2) != little(record, 10, 2)) {
    throw unsupported()
        .part("end record")
        .problem("several disks")
        .expected("a whole archive")
        .found("disk ", little(record, 4, 2), " with ", little(record, 8, 2), " of ",
               little(record, 10, 2), " entries");
  }
  if (end.entries > limits_.max_entries || end.directory_bytes > limits_.max_directory_bytes) {
    throw unsupported()
        .part("directory")
        .problem("too large")
        .expected("at most ", limits_.max_entries, " entries in ", limits_.max_directory_bytes,
                  " bytes")
        .found(end.entries, " in ", end.directory_bytes);
  }
  // Refuse a gap between the directory and the end records. A gap also occurs if the archive
  // follows other bytes in the file and its offsets do not count them: readers interpret such
  // offsets differently.
  if (!base::range_fits(end.directory_offset, end.directory_bytes, end.directory_end) ||
      end.directory_offset + end.directory_bytes != end.directory_end) {
    throw corrupt()
        .part("directory")
        .problem("does not end where the end record starts")
        .expected(end.directory_bytes, " bytes up to byte ", end.directory_end)
        .found("them at byte ", end.directory_offset);
  }
  return end;
}

void ZipDirectoryReader::read_zip64_end(ZipEnd& end, std::uint64_t record_at) const {
  const std::string locator = record_at < kZip64LocatorBytes
                                  ? std::string()
                                  : bytes_at(record_at - kZip64LocatorBytes, kZip64LocatorBytes);
  // Without a zip64 locator, the maximum values in the end record (65,535 entries, 0xffffffff
  // bytes) are true values. With one, they refer to the zip64 end record.
  if (locator.empty() || little(locator, 0, 4) != kZip64LocatorSignature) return;
  const std::uint64_t at = little(locator, 8, 8);
  if (little(locator, 4, 4) != 0 || little(locator, 16, 4) > 1) {
    throw unsupported()
        .part("zip64 locator")
        .problem("several disks")
        .expected("disk 0 of 1")
        .found("disk ", little(locator, 4, 4), " of ", little(locator, 16, 4));
  }
  const std::uint64_t limit = record_at - kZip64LocatorBytes;
  if (!base::range_fits(at, kZip64EndBytes, limit)) {
    throw corrupt()
        .part("zip64 locator")
        .problem("points to no zip64 end record")
        .expected(kZip64EndBytes, " bytes before byte ", limit)
        .found("byte ", at);
  }
  const std::string zip64 = bytes_at(at, kZip64EndBytes);
  if (little(zip64, 0, 4) != kZip64EndSignature || little(zip64, 4, 8) != limit - at - 12) {
    throw corrupt()
        .part("zip64 end record")
        .problem("not at byte ", at)
        .expected("its signature and ", limit - at, " bytes")
        .found("other bytes");
  }
  if (little(zip64, 16, 4) != 0 || little(zip64, 20, 4) != 0 ||
      little(zip64, 24, 8) != little(zip64, 32, 8)) {
    throw unsupported()
        .part("zip64 end record")
        .problem("several disks")
        .expected("a whole archive")
        .found("a part of one");
  }
  const auto agree = [&](const char* what, std::uint64_t& value, std::size_t field,
                         std::uint64_t full) {
    const std::uint64_t wide = little(zip64, field, 8);
    if (value != full && value != wide) {
      throw corrupt()
          .part("zip64 end record")
          .problem(what, " is not that of the end record")
          .expected(value)
          .found(wide);
    }
    value = wide;
  };
  agree("the number of entries", end.entries, 32, kFull16);
  agree("the size of the directory", end.directory_bytes, 40, kFull32);
  agree("the offset of the directory", end.directory_offset, 48, kFull32);
  end.directory_end = at;
}

// --- the central headers, and the checks of all entries together ---

ZipDirectory ZipDirectoryReader::read_central_headers() {
  ZipEnd end = read_end();
  ZipDirectory directory;
  directory.entries = read_centrals(end);
  directory.offset = end.directory_offset;
  directory.names = index_names(directory.entries);
  refuse_bombs(directory.entries);
  directory.comment = std::move(end.comment);
  return directory;
}

std::string ZipDirectoryReader::directory_text(const ZipEnd& end) const {
  // A central header takes at least 46 bytes. Without this check, a small file could declare many
  // entries, for which much memory would be allocated.
  if (end.entries > end.directory_bytes / kCentralBytes) {
    throw corrupt()
        .part("directory")
        .problem("too short for its entries")
        .expected("at least ", kCentralBytes, " bytes for each of ", end.entries, " entries")
        .found(end.directory_bytes, " bytes");
  }
  return bytes_at(end.directory_offset, static_cast<std::size_t>(end.directory_bytes));
}

/// Calls `use` with each central header, in the order of the directory.
template <class Use>
void ZipDirectoryReader::for_each_central(std::string_view text, std::uint64_t entries,
                                          const Use& use) const {
  std::string_view rest = text;
  for (std::uint64_t i = 0; i < entries; ++i) {
    if (rest.size() < kCentralBytes || little(rest, 0, 4) != kCentralSignature) {
      throw corrupt()
          .part("directory")
          .problem("entry ", i, " is no central header")
          .expected("its signature")
          .found(base::quote(rest.substr(0, 4)));
    }
    const std::uint64_t size =
        kCentralBytes + little(rest, 28, 2) + little(rest, 30, 2) + little(rest, 32, 2);
    if (size > rest.size()) {
      throw corrupt()
          .part("directory")
          .problem("entry ", i, " is truncated")
          .expected(size, " bytes")
          .found(rest.size());
    }
    use(rest.substr(0, static_cast<std::size_t>(size)));
    rest.remove_prefix(static_cast<std::size_t>(size));
  }
  if (!rest.empty()) {
    throw corrupt()
        .part("directory")
        .problem("bytes after its last entry")
        .expected(entries, " entries")
        .found(rest.size(), " bytes more");
  }
}

std::vector<ZipEntry> ZipDirectoryReader::read_centrals(const ZipEnd& end) const {
  const std::string text = directory_text(end);
  std::vector<ZipEntry> entries;
  entries.reserve(static_cast<std::size_t>(end.entries));
  for_each_central(text, end.entries, [&](std::string_view header) {
    entries.push_back(parse_central(header));
    entries.back().central_offset =
        end.directory_offset + static_cast<std::uint64_t>(header.data() - text.data());
  });
  return entries;
}

ZipEntry ZipDirectoryReader::parse_central(std::string_view header) const {
  ZipEntry entry;
  const auto name_bytes = static_cast<std::size_t>(little(header, 28, 2));
  entry.name = header.substr(kCentralBytes, name_bytes);
  require_safe_name(entry);
  entry.flags = static_cast<std::uint16_t>(little(header, 8, 2));
  const std::uint64_t method = little(header, 10, 2);
  entry.crc32 = static_cast<std::uint32_t>(little(header, 16, 4));
  entry.stored_bytes = little(header, 20, 4);
  entry.size_bytes = little(header, 24, 4);
  entry.header_offset = little(header, 42, 4);
  const auto extra_bytes = static_cast<std::size_t>(little(header, 30, 2));
  entry.comment = header.substr(kCentralBytes + name_bytes + extra_bytes);
  apply_zip64(entry, header.substr(kCentralBytes + name_bytes, extra_bytes), little(header, 34, 2));
  if ((entry.flags & kEncryptedFlags) != 0) {
    throw unsupported(entry).problem("is encrypted").expected("plain bytes").found("a cipher");
  }
  if ((entry.flags & kPatchFlag) != 0) {
    throw unsupported(entry).problem("is a patch").expected("plain bytes").found("a difference");
  }
  if (method != 0 && method != 8) {
    throw unsupported(entry)
        .problem("unsupported compression method")
        .expected("0 (stored) or 8 (deflated)")
        .found(method, method_name(method));
  }
  entry.has_descriptor = (entry.flags & kDescriptorFlag) != 0;
  entry.method = method == 0 ? ZipMethod::stored : ZipMethod::deflated;
  if (entry.method == ZipMethod::stored && entry.stored_bytes != entry.size_bytes) {
    throw corrupt(entry)
        .problem("is not compressed, but its sizes differ")
        .expected(entry.size_bytes, " bytes")
        .found(entry.stored_bytes);
  }
  if (entry.name.ends_with('/') && entry.size_bytes != 0) {
    throw corrupt(entry).problem("a folder has bytes").expected("0").found(entry.size_bytes);
  }
  return entry;
}

std::optional<std::string_view> ZipDirectoryReader::zip64_extra(const ZipEntry& entry,
                                                                std::string_view extra) const {
  std::optional<std::string_view> found;
  while (extra.size() >= 4) {
    const std::uint64_t id = little(extra, 0, 2);
    const auto size = static_cast<std::size_t>(little(extra, 2, 2));
    if (size > extra.size() - 4) {
      throw corrupt(entry)
          .problem("an extra field is truncated")
          .expected(size, " bytes")
          .found(extra.size() - 4);
    }
    if (id == kZip64Extra) {
      if (found) {
        throw corrupt(entry).problem("its zip64 field is duplicated").expected("one").found("two");
      }
      found = extra.substr(4, size);
    }
    extra.remove_prefix(4 + size);
  }
  return found;
}

void ZipDirectoryReader::apply_zip64(ZipEntry& entry, std::string_view extra,
                                     std::uint64_t disk) const {
  const std::optional<std::string_view> zip64 = zip64_extra(entry, extra);
  std::string_view rest = zip64.value_or(std::string_view());
  const auto widen = [&](std::uint64_t& value) {
    if (value != kFull32 || !zip64) return;
    if (rest.size() < 8) {
      throw corrupt(entry)
          .problem("its zip64 field is too short")
          .expected("8 bytes more")
          .found(rest.size());
    }
    value = little(rest, 0, 8);
    rest.remove_prefix(8);
  };
  widen(entry.size_bytes);
  widen(entry.stored_bytes);
  widen(entry.header_offset);
  if (disk == kFull16 && rest.size() >= 4) disk = little(rest, 0, 4);
  if (disk != 0) {
    throw unsupported(entry).problem("is on another disk").expected("disk 0").found(disk);
  }
}

void ZipDirectoryReader::require_safe_name(const ZipEntry& entry) const {
  const std::optional<std::string_view> fault = zip_name_fault(entry.name);
  if (!fault) return;
  throw unsupported(entry)
      .problem("its name ", *fault)
      .expected("a relative path in UTF-8")
      .found(base::quote(entry.name));
}

/// Builds the table of names. Throws for a duplicate name.
ZipNames ZipDirectoryReader::index_names(const std::vector<ZipEntry>& entries) const {
  ZipNames names(std::bit_ceil(2 * entries.size() + 1), {0, ZipDirectory::kNone});
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    const ZipEntry& entry = entries[i];
    const std::uint64_t hash = hash_of(entry.name);
    const std::uint32_t tag = tag_of(hash);
    std::size_t slot = hash & (names.size() - 1);
    for (; names[slot].second != ZipDirectory::kNone; slot = (slot + 1) & (names.size() - 1)) {
      if (names[slot].first == tag && entries[names[slot].second].name == entry.name) {
        throw corrupt(entry).problem("its name is duplicated").expected("it once").found("two");
      }
    }
    names[slot] = {tag, i};
  }
  return names;
}

void ZipDirectoryReader::refuse_bombs(const std::vector<ZipEntry>& entries) const {
  std::uint64_t total_bytes = 0;
  for (const ZipEntry& entry : entries) {
    if (entry.method != ZipMethod::deflated) continue;
    const auto most = base::checked_mul(entry.stored_bytes, limits_.max_ratio);
    if (most && entry.size_bytes > *most) {
      throw unsupported(entry)
          .problem("inflates too much")
          .expected("at most ", limits_.max_ratio, " bytes for each of ", entry.stored_bytes,
                    " deflated bytes")
          .found(entry.size_bytes);
    }
    const auto sum = base::checked_add(total_bytes, entry.size_bytes);
    if (!sum || *sum > limits_.max_inflated_bytes) {
      throw unsupported(entry)
          .problem("the archive inflates to too many bytes")
          .expected("at most ", limits_.max_inflated_bytes, " bytes")
          .found(entry.size_bytes, " bytes after ", total_bytes, " bytes of earlier entries");
    }
    total_bytes = *sum;
  }
}

// --- the local header before each entry's bytes, and the data descriptor after them ---

/// Processes entries in file order, because the bytes of one entry must end before the header of
/// the next.
void ZipDirectoryReader::read_local_headers(ZipDirectory& directory) {
  limit_ = directory.offset;
  order_.reserve(directory.entries.size());
  for (ZipEntry& entry : directory.entries) order_.push_back(&entry);
  const auto is_before = [](const ZipEntry* a, const ZipEntry* b) {
    return a->header_offset < b->header_offset;
  };
  if (!std::is_sorted(order_.begin(), order_.end(), is_before)) {
    std::stable_sort(order_.begin(), order_.end(), is_before);
  }
  for (std::size_t i = 0; i < order_.size(); ++i) {
    read_local(*order_[i]);
    require_end(*order_[i], i + 1 < order_.size() ? order_[i + 1]->header_offset : limit_);
  }
}

void ZipDirectoryReader::read_local_header(ZipEntry& entry, std::uint64_t limit) {
  limit_ = limit;
  order_ = {&entry};
  read_local(entry);
}

/// Returns the part of the bytes [offset, offset + size) that is before `limit_`, which `offset`
/// must not exceed. The result is valid until the next call.
std::string_view ZipDirectoryReader::near_headers(std::uint64_t offset, std::size_t size) {
  const bool inside =
      offset >= window_at_ && base::range_fits(offset - window_at_, size, window_.size());
  if (!inside) {
    std::uint64_t end = std::min(offset + size + kUsualExtraBytes, limit_);
    for (; next_ < order_.size(); ++next_) {
      const ZipEntry& entry = *order_[next_];
      if (entry.header_offset > end + kMaxGapBytes || end - offset > kWindowBytes) break;
      const std::uint64_t header_bytes = kLocalBytes + entry.name.size();
      if (!base::range_fits(entry.header_offset, header_bytes, limit_)) break;
      end = std::max(end, entry.header_offset + header_bytes);
    }
    read_window(offset, static_cast<std::size_t>(end - offset));
  }
  return window_.substr(static_cast<std::size_t>(offset - window_at_), size);
}

/// Reads a window of the file. Reuses its memory without zeroing it first, because most bytes of a
/// file of small entries pass through the window.
void ZipDirectoryReader::read_window(std::uint64_t offset, std::size_t size) {
  if (size > window_capacity_) {
    window_capacity_ = std::max<std::size_t>(size, kWindowBytes + kMaxGapBytes);
    window_memory_ = std::make_unique_for_overwrite<char[]>(window_capacity_);
  }
  window_ = {};
  if (size > 0) input_.read(offset, std::as_writable_bytes(std::span(window_memory_.get(), size)));
  window_ = {window_memory_.get(), size};
  window_at_ = offset;
}

void ZipDirectoryReader::read_local(ZipEntry& entry) {
  if (!base::range_fits(entry.header_offset, kLocalBytes, limit_)) {
    throw corrupt(entry)
        .problem("its local header is not before the directory")
        .expected(kLocalBytes, " bytes before byte ", limit_)
        .found("byte ", entry.header_offset);
  }
  // The name in the local header nearly always equals the name in the directory, so read both the
  // header and the name at once.
  const std::uint64_t wanted =
      std::min<std::uint64_t>(kLocalBytes + entry.name.size(), limit_ - entry.header_offset);
  const std::string_view local =
      near_headers(entry.header_offset, static_cast<std::size_t>(wanted));
  if (little(local, 0, 4) != kLocalSignature) {
    throw corrupt(entry)
        .problem("no local header at byte ", entry.header_offset)
        .expected("its signature")
        .found(base::quote(local.substr(0, 4)));
  }
  const std::uint64_t name_bytes = little(local, 26, 2);
  const std::uint64_t extra_bytes = little(local, 28, 2);
  if (name_bytes != entry.name.size() || local.substr(kLocalBytes) != entry.name) {
    throw corrupt(entry)
        .problem("its local header has another name")
        .expected("the directory's name")
        .found(base::quote(
            near_headers(entry.header_offset, static_cast<std::size_t>(kLocalBytes + name_bytes))
                .substr(kLocalBytes)));
  }
  const std::uint64_t method = entry.method == ZipMethod::stored ? 0 : 8;
  if (little(local, 8, 2) != method) {
    throw corrupt(entry)
        .problem("its local header has another method")
        .expected(method)
        .found(little(local, 8, 2));
  }
  const std::uint64_t local_flags = little(local, 6, 2);
  std::uint64_t compared_flags = kEncryptedFlags | kDescriptorFlag | kPatchFlag;
  // The UTF-8 flag has no effect on ASCII names; for other names, a different flag would give a
  // different name.
  if (std::ranges::any_of(entry.name, [](char c) { return (c & 0x80) != 0; }))
    compared_flags |= kUtf8Flag;
  if (((local_flags ^ entry.flags) & compared_flags) != 0) {
    throw corrupt(entry)
        .problem("its local header has other flags")
        .expected(fmt::format("{:#06x}", entry.flags))
        .found(fmt::format("{:#06x}", local_flags));
  }
  entry.data_offset = entry.header_offset + kLocalBytes + name_bytes + extra_bytes;
  if (!base::range_fits(entry.data_offset, entry.stored_bytes, limit_)) {
    throw corrupt(entry)
        .problem("reaches past the file's entries")
        .expected("an end of at most ", limit_)
        .found(entry.stored_bytes, " bytes at byte ", entry.data_offset);
  }
  const bool wide = little(local, 18, 4) == kFull32 || little(local, 22, 4) == kFull32;
  entry.local_crc32 = static_cast<std::uint32_t>(little(local, 14, 4));
  compare_local_sizes(
      entry, wide ? near_headers(entry.header_offset,
                                 static_cast<std::size_t>(entry.data_offset - entry.header_offset))
                  : local);
}

void ZipDirectoryReader::compare_local_sizes(const ZipEntry& entry, std::string_view local) const {
  const std::string_view extra = local.substr(kLocalBytes + entry.name.size());
  std::uint64_t stored = little(local, 18, 4);
  std::uint64_t size = little(local, 22, 4);
  if (const auto zip64 = zip64_extra(entry, extra)) {
    std::string_view rest = *zip64;
    for (std::uint64_t* value : {&size, &stored}) {
      if (*value != kFull32 || rest.size() < 8) continue;
      *value = little(rest, 0, 8);
      rest.remove_prefix(8);
    }
  }
  // With a data descriptor, the writer either wrote zeros here, or filled in the true values later.
  const bool later = (entry.flags & kDescriptorFlag) != 0;
  const auto agree = [&](const char* what, std::uint64_t expected, std::uint64_t found) {
    if (found == expected || (later && found == 0)) return;
    throw corrupt(entry)
        .problem("its local header has another ", what)
        .expected(expected)
        .found(found);
  };
  if (limits_.same_crc32s) agree("CRC-32", entry.crc32, entry.local_crc32);
  agree("stored size", entry.stored_bytes, stored);
  agree("size", entry.size_bytes, size);
}

/// Returns the size of the data descriptor after the entry's bytes. A descriptor may have a
/// signature, and its sizes have 32 or 64 bits. No field of the archive tells reliably which form a
/// writer used, so all four are tried.
std::uint64_t ZipDirectoryReader::descriptor_bytes(const ZipEntry& entry, std::uint64_t next) {
  const std::uint64_t offset = entry.data_offset + entry.stored_bytes;
  const std::string_view text =
      near_headers(offset, static_cast<std::size_t>(std::min<std::uint64_t>(24, next - offset)));
  for (const std::size_t head : {std::size_t{4}, std::size_t{0}}) {
    for (const std::size_t width : {std::size_t{8}, std::size_t{4}}) {
      const std::size_t size = head + 4 + 2 * width;
      if (text.size() < size) continue;
      if (head != 0 && little(text, 0, 4) != kDescriptorSignature) continue;
      if (little(text, head, 4) == entry.crc32 &&
          little(text, head + 4, width) == entry.stored_bytes &&
          little(text, head + 4 + width, width) == entry.size_bytes) {
        return size;
      }
    }
  }
  throw corrupt(entry)
      .problem("no data descriptor at byte ", offset)
      .expected("the CRC-32 and the sizes in the directory")
      .found(base::quote(text));
}

void ZipDirectoryReader::require_end(const ZipEntry& entry, std::uint64_t next) {
  std::uint64_t end = entry.data_offset + entry.stored_bytes;
  if (end <= next && (entry.flags & kDescriptorFlag) != 0) end += descriptor_bytes(entry, next);
  if (end <= next) return;
  throw corrupt(entry)
      .problem("overlaps the entry after it")
      .expected("an end of at most ", next)
      .found(end);
}

// --- the functions of zip.hpp ---

std::optional<std::string_view> zip_name_fault(std::string_view name) noexcept {
  if (name.empty()) return "is empty";
  if (!base::is_utf8(name)) return "is not UTF-8";
  if (name.find('\0') != std::string_view::npos) return "has a zero byte";
  if (name.find('\\') != std::string_view::npos) return "has a backslash";
  if (name.size() > 2 && name[1] == ':' && name[2] == '/') return "has a drive";
  while (!name.empty()) {
    const std::size_t slash = std::min(name.find('/'), name.size());
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..") {
      return "has an empty, \".\" or \"..\" component";
    }
    name.remove_prefix(std::min(slash + 1, name.size()));
  }
  return std::nullopt;
}

const ZipEntry* ZipDirectory::find(std::string_view name) const {
  if (names.empty()) return nullptr;
  const std::uint64_t hash = hash_of(name);
  for (std::size_t slot = hash & (names.size() - 1); names[slot].second != kNone;
       slot = (slot + 1) & (names.size() - 1)) {
    const ZipEntry& entry = entries[names[slot].second];
    if (names[slot].first == tag_of(hash) && entry.name == name) return &entry;
  }
  return nullptr;
}

ZipDirectory read_zip_directory(const ZipInput& input, const ZipLimits& limits) {
  ZipDirectoryReader reader(input, limits);
  ZipDirectory directory = reader.read_central_headers();
  reader.read_local_headers(directory);
  return directory;
}

ZipDirectory read_zip_central_headers(const ZipInput& input, const ZipLimits& limits) {
  return ZipDirectoryReader(input, limits).read_central_headers();
}

void read_zip_local_headers(const ZipInput& input, const ZipLimits& limits,
                            ZipDirectory& directory) {
  ZipDirectoryReader(input, limits).read_local_headers(directory);
}

ZipEntry with_local_header(const ZipInput& input, const ZipDirectory& directory, ZipEntry entry) {
  const ZipLimits limits;
  ZipDirectoryReader(input, limits).read_local_header(entry, directory.offset);
  return entry;
}

}  // namespace tenfold::codecs
