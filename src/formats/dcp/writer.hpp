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

/// An item of a `.distcp` file: a file of torch.save. Another process writes the bytes of a
/// tensor; this class writes the records before and after them.
class ItemFile {
 public:
  ItemFile(DType dtype, const Shape& shape);
  /// Throws Error(unsupported) for a value that torch does not load.
  explicit ItemFile(const Value& value);

  std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// The offset of the tensor's bytes; for a value, the size of head().
  std::uint64_t data_offset() const noexcept { return data_offset_; }
  /// The bytes before the tensor's bytes, which have that CRC-32, and those after them.
  std::string head(std::uint32_t crc32) const;
  std::string tail(std::uint32_t crc32) const;

 private:
  explicit ItemFile(std::vector<ZipArchiveEntry> entries);
  std::vector<std::uint32_t> crc32s(std::uint32_t of_data) const;

  std::vector<ZipArchiveEntry> entries_;
  codecs::ZipLayout layout_;
  std::size_t data_entry_ = 0;  ///< entries_.size(): there is none
  std::uint64_t data_offset_ = 0;
  std::uint64_t size_bytes_ = 0;
};

/// The bytes of `.metadata`: a pickle of torch's Metadata, as parse_metadata() and torch read it.
/// A chunk whose item has no bytes is stored nowhere: it has no elements.
std::string write_metadata(const Metadata& metadata);

}  // namespace tenfold::detail::formats::dcp
