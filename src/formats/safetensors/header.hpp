#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/dtype.hpp>

#include "core/tree/key_index.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::safetensors {

/// The header of a safetensors file. The file consists of the length of the header (eight bytes),
/// the header as JSON, and the tensors' bytes. After parse_header(), the byte range of every tensor
/// is inside the file and can be used without checks.
///
/// The entries are one flat table, in the order of the header; names and shapes are contiguous in
/// two arrays. A file of 10,000 tensors is opened in a few milliseconds, so every small allocation
/// matters.
struct Header {
  /// A tensor. `begin` and `end` count from the first data byte.
  struct Entry {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint32_t name_at = 0;    ///< offset of its name in `names`
    std::uint32_t name_size = 0;  ///< in bytes
    std::uint32_t shape_at = 0;   ///< index of its first length in `shapes`
    std::uint32_t rank = 0;       ///< number of dimensions
    DType dtype = DType::float32;
  };

  std::vector<Entry> entries;
  std::string names;
  std::vector<std::int64_t> shapes;  ///< in torch's units: the last dimension of F4 is halved
  std::map<std::string, std::string, std::less<>> metadata;
  KeyIndex index;                 ///< index of `entries` by name
  std::uint64_t data_offset = 0;  ///< offset of the first data byte in the file
  std::uint64_t data_bytes = 0;

  std::string_view name(std::size_t i) const {
    return std::string_view(names).substr(entries[i].name_at, entries[i].name_size);
  }
  std::span<const std::int64_t> shape(std::size_t i) const {
    return std::span(shapes).subspan(entries[i].shape_at, entries[i].rank);
  }
  /// Returns the index of the entry with that name, or KeyIndex::kNone.
  std::uint32_t find(std::string_view name) const;
  /// Returns the value of a `__metadata__` member, or null.
  const std::string* metadata_value(std::string_view key) const;
  /// Returns the indices of `entries` in the order of the tensors' bytes in the file.
  std::vector<std::uint32_t> file_order() const;
};

/// The format's limit for the JSON text of a header.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// Returns safetensors' name for a dtype ("F32"), or nullopt if it has none.
std::optional<std::string_view> name_of_dtype(DType dtype) noexcept;
/// Returns the dtype with that name, or nullopt for an unknown name.
std::optional<DType> dtype_of_name(std::string_view name) noexcept;
/// The position of a dtype in the order in which the Rust library safetensors writes tensors:
/// widest first, but BOOL last.
int order_of_dtype(DType dtype) noexcept;

/// Parses and validates the JSON `text` of a header for `data_bytes` bytes of data. `where` names
/// the file. Throws Error(corrupt) for an invalid header, and Error(unsupported) for an unknown
/// dtype.
Header parse_header(std::string_view text, std::uint64_t data_bytes, std::string_view where);

/// Reads the header, including the eight bytes of its length. `file_bytes` is the size of the file.
/// Throws Error(corrupt), before it reads the header, if the length exceeds the file or
/// kMaxHeaderBytes.
std::string read_header_bytes(const os::File& file, std::uint64_t file_bytes);

/// A tensor to be written.
struct TensorEntry {
  std::string_view name;
  DType dtype = DType::float32;
  std::span<const std::int64_t> shape;
  std::uint64_t size_bytes = 0;
};

/// Returns a header, including the eight bytes of its length, padded with spaces so that the data
/// is aligned to 64 bytes. The byte ranges of the tensors are contiguous, in the given order.
/// name_of_dtype() must support each dtype.
std::string write_header(std::span<const TensorEntry> tensors,
                         const std::map<std::string, std::string, std::less<>>& metadata);

}  // namespace tenfold::detail::formats::safetensors
