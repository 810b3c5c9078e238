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

/// The header of a safetensors file: eight bytes of length, then JSON, then the tensors' bytes.
/// After parse_safetensors_header() every range lies inside the file and may be used unchecked.
///
/// The entries are one flat table, in the order in which the header names them; names and shapes
/// lie end to end in two lists, because a file of 10,000 tensors is opened in a few milliseconds
/// and every small allocation counts.
struct Header {
  struct Entry {
    std::uint64_t begin = 0;  ///< from the first data byte
    std::uint64_t end = 0;
    std::uint32_t name_at = 0;
    std::uint32_t name_size = 0;
    std::uint32_t shape_at = 0;
    std::uint32_t rank = 0;
    DType dtype = DType::float32;
  };

  std::vector<Entry> entries;
  std::string names;
  std::vector<std::int64_t> shapes;  ///< as torch counts: the last dimension of F4 is halved
  std::map<std::string, std::string, std::less<>> metadata;
  KeyIndex index;                 ///< of `entries`, by name
  std::uint64_t data_offset = 0;  ///< of the first data byte in the file
  std::uint64_t data_bytes = 0;

  std::string_view name(std::size_t i) const {
    return std::string_view(names).substr(entries[i].name_at, entries[i].name_size);
  }
  std::span<const std::int64_t> shape(std::size_t i) const {
    return std::span(shapes).subspan(entries[i].shape_at, entries[i].rank);
  }
  /// The entry of that name, or KeyIndex::kNone.
  std::uint32_t find(std::string_view name) const;
  /// The value of a `__metadata__` member, or null.
  const std::string* metadata_value(std::string_view key) const;
  /// Positions of `entries` in the order of their bytes.
  std::vector<std::uint32_t> file_order() const;
};

inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// The name of safetensors for a dtype ("F32"), or nothing for one it does not have.
std::optional<std::string_view> name_of_dtype(DType dtype) noexcept;
/// The dtype of that name, or nothing.
std::optional<DType> dtype_of_name(std::string_view name) noexcept;
/// Where a dtype comes when tensors are ordered, as the reference does it: widest first.
int order_of_dtype(DType dtype) noexcept;

/// Parses and validates the JSON `text` of a header that stands before `data_bytes` bytes of data.
/// `where` names the file. Throws Error(corrupt); Error(unsupported) for a dtype torch lacks.
Header parse_header(std::string_view text, std::uint64_t data_bytes, std::string_view where);

/// Reads the header's bytes, the eight of its length included, having checked the length.
/// `file_bytes` is the size of the file.
std::string read_header_bytes(const os::File& file, std::uint64_t file_bytes);

/// A tensor to be written.
struct TensorEntry {
  std::string_view name;
  DType dtype = DType::float32;
  std::span<const std::int64_t> shape;
  std::uint64_t size_bytes = 0;
};

/// The bytes of a header, length included, padded with spaces so that data starts at a multiple of
/// 64. The tensors lie end to end in the order given.
std::string write_header(std::span<const TensorEntry> tensors,
                         const std::map<std::string, std::string, std::less<>>& metadata);

}  // namespace tenfold::detail::formats::safetensors
