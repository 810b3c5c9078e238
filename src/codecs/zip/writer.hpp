#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codecs/zip/zip.hpp"

namespace tenfold::codecs {

/// An entry to be written, without its CRC-32.
struct ZipItem {
  std::string name;
  std::uint64_t size_bytes = 0;    ///< uncompressed size
  std::uint64_t stored_bytes = 0;  ///< size in the archive; equal to size_bytes for a stored item
  ZipMethod method = ZipMethod::stored;
  /// Its bytes start at a multiple of this power of two, at most kMaxZipAlignment.
  std::uint32_t alignment = 1;
  std::string comment{};  ///< in the directory; at most 65,535 bytes
};

inline constexpr std::uint32_t kMaxZipAlignment = 1U << 15U;

/// The layout of an archive. The position of an item does not depend on later items, so its bytes
/// can be written before the next item is added.
///
///   local header, bytes of item 0
///   local header, bytes of item 1
///   ...
///   central directory and end records  zip64 records if a size, an offset or the number of entries
///                                      needs them
///   comment                            the checksum of the structure (structure.hpp)
///
/// There are no gaps between these parts. Padding in the extra fields of the local headers aligns
/// the bytes. Local headers have the sizes and the CRC-32, so no data descriptors follow the bytes.
/// Dates are 1980-01-01, so that equal items make equal archives.
class ZipLayout {
 public:
  /// Throws Error(invalid_argument) for a duplicate name, a name that zip_name_fault() refuses, a
  /// name or comment of more than 65,535 bytes, and an invalid alignment. Throws Error(unsupported)
  /// for more items than ZipLimits allows by default.
  explicit ZipLayout(std::vector<ZipItem> items);
  ZipLayout() = default;

  /// Appends one more item. Throws like the constructor, but does not check for a duplicate name.
  void add(ZipItem item);

  const std::vector<ZipItem>& items() const noexcept { return items_; }
  /// Offset of the item's bytes, which follow its local header.
  std::uint64_t data_offset(std::size_t item) const { return places_[item].data; }
  std::uint64_t directory_offset() const noexcept { return directory_offset_; }

  /// The local header of the item, with its padding. `crc32`: of the item's uncompressed bytes.
  std::string local_header(std::size_t item, std::uint32_t crc32) const;
  /// The central directory and everything after it: the end records, and the comment with the
  /// checksum of the structure. `crc32s`: one for each item. Throws Error(unsupported) for a
  /// directory that is larger than ZipLimits allows by default.
  std::string directory(std::span<const std::uint32_t> crc32s) const;

 private:
  struct Place {
    std::uint64_t header = 0;
    std::uint64_t data = 0;
  };

  void place(const ZipItem& item);

  std::vector<ZipItem> items_;
  std::vector<Place> places_;
  std::uint64_t directory_offset_ = 0;
};

}  // namespace tenfold::codecs
