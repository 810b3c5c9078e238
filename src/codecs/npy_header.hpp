#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fail.hpp"

namespace tenfold::codecs {

/// The header of a NumPy file (.npy), versions 1.0, 2.0 and 3.0:
///
///   "\x93NUMPY" major minor | header length, little-endian: 2 bytes in 1.0, else 4
///   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  spaces  newline
///
/// The header is a Python literal. It is parsed here, never evaluated.
struct NpyHeader {
  /// NumPy's name of the dtype: "<f4". For a structured dtype, the literal: "[('x', '<f4')]".
  std::string descr;
  bool is_structured = false;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::uint64_t data_offset_bytes = 0;  ///< offset of the first element

  bool operator==(const NpyHeader&) const = default;
};

inline constexpr std::string_view kNpyMagic = "\x93NUMPY";
/// Enough bytes to read the length of the header.
inline constexpr std::size_t kNpyPrefixBytes = 12;
/// Maximum header length that a file may declare. NumPy's default limit is 10,000 bytes.
inline constexpr std::uint64_t kMaxNpyHeaderBytes = std::uint64_t{1} << 20;

/// Returns the offset of the elements. `prefix`: at least the first kNpyPrefixBytes of a file, or
/// the whole file if it is shorter. Throws Error(corrupt) if this is not a NumPy file, the prefix
/// is too short or the header is longer than kMaxNpyHeaderBytes, and Error(unsupported) for an
/// unknown version.
std::uint64_t npy_data_offset(std::string_view prefix, const base::Where& where);

/// Parses the header from the first bytes of a file, which must include the whole header. No length
/// in the resulting shape is negative, but their product may overflow. Throws the errors of
/// npy_data_offset(), and Error(corrupt) "<where>: header: <what>: expected ..., found ...", which
/// ends in "at byte N" for a syntax error.
NpyHeader parse_npy_header(std::string_view bytes, const base::Where& where);

/// Formats the header as numpy.save writes it, byte for byte: version 1.0 if the header is short
/// enough, else 2.0, padded to a multiple of 64 bytes. Ignores `data_offset_bytes`. A structured
/// `descr`, which must be ASCII, is written unchanged.
std::string write_npy_header(const NpyHeader& header);

}  // namespace tenfold::codecs
