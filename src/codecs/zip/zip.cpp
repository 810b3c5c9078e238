#include "codecs/zip/zip.hpp"

#include <tenfold/error.hpp>

#include <algorithm>
#include <bit>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "base/checked.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "codecs/zip/directory.hpp"
#include "codecs/zip/records.hpp"

// The directory of a zip archive: the central headers, and the checks of all entries together.
// end_record.cpp reads the end records, local_header.cpp the local headers, entry.cpp the entries.

namespace tenfold::codecs {
namespace {

/// Names come from files: without a random seed, a hostile file could make all of them collide.
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
  // A header takes at least 46 bytes, so this limits the allocation by the size of the file.
  if (end.entries > end.directory_bytes / kCentralBytes) {
    throw corrupt()
        .part("directory")
        .problem("too short for its entries")
        .expected("at least ", kCentralBytes, " bytes for each of ", end.entries, " entries")
        .found(end.directory_bytes, " bytes");
  }
  return bytes_at(end.directory_offset, static_cast<std::size_t>(end.directory_bytes));
}

/// Calls `use` with each central header of the directory, in order.
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
          .problem("the archive inflates to too much")
          .expected("at most ", limits_.max_inflated_bytes, " bytes")
          .found(entry.size_bytes, " after ", total_bytes, " of others");
    }
    total_bytes = *sum;
  }
}

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
