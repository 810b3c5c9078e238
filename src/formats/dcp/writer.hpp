#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/value.hpp>

#include "codecs/zip/writer.hpp"
#include "formats/dcp/metadata.hpp"
#include "formats/shared/zip_archive.hpp"

namespace tenfold::detail::formats::dcp {

/// An item of a `.distcp` file: a file of torch.save. For a tensor, the item is head(), the
/// tensor's bytes and tail(). For a value, the item is head() and tail().
class ItemFile {
 public:
  ItemFile(DType dtype, const Shape& shape);
  /// Throws Error(unsupported) for a value that a file of torch.save cannot store.
  explicit ItemFile(const Value& value);

  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// The offset of the tensor's bytes in the item; for a value, the size of head().
  std::uint64_t data_offset() const noexcept { return data_offset_; }
  /// `crc32` is the CRC-32 of the tensor's bytes; ignored for a value.
  std::string head(std::uint32_t crc32) const;
  std::string tail(std::uint32_t crc32) const;

 private:
  explicit ItemFile(std::vector<ZipArchiveEntry> entries);
  std::vector<std::uint32_t> crc32s(std::uint32_t of_data) const;

  std::vector<ZipArchiveEntry> entries_;
  codecs::ZipLayout layout_;
  std::size_t data_entry_ = 0;  ///< index of the tensor's entry; entries_.size() for a value
  std::uint64_t data_offset_ = 0;
  std::uint64_t size_bytes_ = 0;
};

/// Returns the bytes of `.metadata`: a pickle of torch's Metadata that parse_metadata() and torch
/// can read. `storage_data` omits items of size 0, which belong to chunks without elements.
std::string write_metadata(const Metadata& metadata);

}  // namespace tenfold::detail::formats::dcp
