#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tenfold/schema.hpp>

#include "ingest/arrow/abi.hpp"

namespace tenfold {

/// How the buffers of an Arrow array are laid out.
enum class ArrowKind : std::uint8_t {
  null,         ///< no buffers
  boolean,      ///< a bit a value
  number,       ///< values of `stored`
  text,         ///< offsets and bytes
  text_view,    ///< views of 16 bytes, and buffers they point into
  fixed_bytes,  ///< `width` bytes a value
  decimal,      ///< integers of `width` bytes, to be divided by 10^scale
  list,         ///< offsets into the child
  list_view,    ///< offsets and sizes
  fixed_list,   ///< `width` values of the child
  record,       ///< a struct
  map,          ///< a list of records of key and value
};

/// The type of an Arrow array, parsed and checked.
struct ArrowType {
  ArrowKind kind = ArrowKind::null;
  std::string name;  ///< of the field
  std::string format;
  DType stored = DType::float64;  ///< number: in Arrow's buffer
  DType dtype = DType::float64;   ///< number: in our column; dates and times are int64
  std::string unit;               ///< of dates, times, durations: "days", "s", "ms", "us", "ns"
  bool is_binary = false;         ///< text: bytes rather than UTF-8
  bool is_large = false;          ///< text, lists: offsets of 64 bits
  std::int64_t width = 0;
  std::int32_t scale = 0;
  std::vector<ArrowType> children;
  /// The values are positions (of `stored`) in an array of this type.
  std::shared_ptr<const ArrowType> dictionary;

  /// What the values are: those of the dictionary, if there is one.
  const ArrowType& values() const noexcept { return dictionary ? *dictionary : *this; }
  bool is_list() const noexcept {
    return kind == ArrowKind::list || kind == ArrowKind::list_view || kind == ArrowKind::fixed_list;
  }
};

/// Throws Error(corrupt) for what is no schema of Arrow's, Error(unsupported) naming the column for
/// a type that no column can hold (unions, intervals of several units, run-end encoding).
ArrowType parse_arrow_type(const ArrowSchema& schema, const std::string& where);

}  // namespace tenfold
