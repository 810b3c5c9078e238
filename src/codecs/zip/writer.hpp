#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "codecs/zip/zip.hpp"

namespace tenfold::codecs {

/// An entry that is going to be written: everything of it but its CRC-32.
struct ZipItem {
  std::string name;
  std::uint64_t size_bytes = 0;    ///< what it holds
  std::uint64_t stored_bytes = 0;  ///< what it takes in the archive; of a stored one the same
  ZipMethod method = ZipMethod::stored;
  /// Its bytes start at a multiple of this, a power of two of at most kMaxZipAlignment.
  std::uint32_t alignment = 1;
  std::string comment{};  ///< of at most 65,535 bytes, in the directory
};

inline constexpr std::uint32_t kMaxZipAlignment = 1U << 15U;

/// Where everything of an archive lies, known before its first byte is written:
///
///   local header, bytes of item 0      the headers have true sizes and CRCs, so no descriptors
///   local header, bytes of item 1      follow; filler in their extra fields aligns the bytes
///   ...
///   central directory and end records  zip64's where a size, an offset or the number of entries
///                                      needs them
///   comment                            the checksum of all of this but the items' bytes
///
/// Nothing lies between these parts. Dates are 1980-01-01, so that equal items make equal archives.
class ZipLayout {
 public:
  /// Throws Error(invalid_argument) for a name that a reader would refuse, that is longer than
  /// 65,535 bytes or there twice, and for an alignment that is none.
  explicit ZipLayout(std::vector<ZipItem> items);
  ZipLayout() = default;

  /// Places one more item behind the others. Throws as the constructor, but does not compare its
  /// name with theirs.
  void add(ZipItem item);

  const std::vector<ZipItem>& items() const noexcept { return items_; }
  /// Of the item's bytes. Its local header ends there.
  std::uint64_t data_offset(std::size_t item) const { return places_[item].data; }
  std::uint64_t directory_offset() const noexcept { return directory_offset_; }

  std::string local_header(std::size_t item, std::uint32_t crc32) const;
  /// The central directory and what follows it, up to the end of the archive: the comment with the
  /// checksum of the structure (zip_structure.hpp).
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
