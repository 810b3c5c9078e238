#include <algorithm>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "codecs/zip/directory.hpp"
#include "codecs/zip/records.hpp"

// The local header before each entry's bytes, and the data descriptor after them.

namespace tenfold::codecs {
namespace {

/// Local headers at most this far apart are read in one call: small entries need no call each, and
/// the bytes of large entries are not read.
constexpr std::uint64_t kMaxGapBytes = 4096;
constexpr std::uint64_t kWindowBytes = 65536;
/// Maximum size of the extra fields of most entries: zip64's, and padding to a multiple of 64.
constexpr std::uint64_t kUsualExtraBytes = 96;

}  // namespace

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

/// Returns the bytes [offset, offset + size), which must end within the limit. They are valid until
/// the next call.
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

/// Reuses the memory and does not zero it first: most of a file of small entries passes
/// through it.
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
        .problem("its header is outside the file's entries")
        .expected(kLocalBytes, " bytes before byte ", limit_)
        .found("byte ", entry.header_offset);
  }
  // The name nearly always equals that of the directory, so read header and name at once.
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
        .found(base::quote(local.substr(kLocalBytes, static_cast<std::size_t>(name_bytes))));
  }
  const std::uint64_t local_flags = little(local, 6, 2);
  const std::uint64_t method = entry.method == ZipMethod::stored ? 0 : 8;
  std::uint64_t compared_flags = kEncryptedFlags | kDescriptorFlag | kPatchFlag;
  // The UTF-8 flag has no effect on ASCII names; for other names, a different flag would give a
  // different name.
  if (std::ranges::any_of(entry.name, [](char c) { return (c & 0x80) != 0; }))
    compared_flags |= kUtf8Flag;
  if (little(local, 8, 2) != method || ((local_flags ^ entry.flags) & compared_flags) != 0) {
    throw corrupt(entry)
        .problem("its local header has another method")
        .expected("method ", method, " with flags ", fmt::format("{:#06x}", entry.flags))
        .found(little(local, 8, 2), " with ", fmt::format("{:#06x}", local_flags));
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

/// Returns the size of the data descriptor after the entry's bytes. It has an optional signature,
/// and sizes of 32 or 64 bits; the format does not declare which.
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
      .expected("CRC-32 and sizes of the directory")
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

}  // namespace tenfold::codecs
