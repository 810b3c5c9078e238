#pragma once

#include <cstdint>
#include <optional>

#include <tenfold/schema.hpp>

#include "ingest/number_text.hpp"

namespace tenfold {

/// The kinds of scalars in a column, as a set of bits: the bitwise or of the kinds of its values.
using ScalarKinds = std::uint16_t;
namespace scalar_kind {
inline constexpr ScalarKinds kNull = 1;
inline constexpr ScalarKinds kBool = 2;
inline constexpr ScalarKinds kInteger = 4;
inline constexpr ScalarKinds kNegative = 8;  ///< an integer below 0
inline constexpr ScalarKinds kBig = 16;      ///< an integer above int64 that fits uint64, or any
                                             ///< integer of a uint64 column
inline constexpr ScalarKinds kHuge = 32;     ///< an integer that fits neither int64 nor uint64
inline constexpr ScalarKinds kInexact = 64;  ///< an integer that a double does not represent
                                             ///< exactly, or whose magnitude exceeds 64 bits
inline constexpr ScalarKinds kFloat = 128;
inline constexpr ScalarKinds kString = 256;
}  // namespace scalar_kind

/// True if a double represents this integer exactly.
inline bool is_exact(std::int64_t value) noexcept {
  constexpr std::int64_t kAllExact = std::int64_t{1} << 53;
  if (value >= -kAllExact && value <= kAllExact) return true;
  const auto rounded = static_cast<double>(value);
  return rounded < 0x1p63 && static_cast<std::int64_t>(rounded) == value;
}

inline ScalarKinds kinds_of(std::int64_t value) noexcept {
  ScalarKinds kinds = scalar_kind::kInteger;
  if (value < 0) kinds |= scalar_kind::kNegative;
  if (!is_exact(value)) kinds |= scalar_kind::kInexact;
  return kinds;
}

/// The kinds of an integer from a uint64 column: kBig even if the integer is small.
ScalarKinds kinds_of(std::uint64_t value) noexcept;
ScalarKinds kinds_of(const NumberText& number) noexcept;

/// The type of a column of scalars.
struct ScalarType {
  ColumnKind kind = ColumnKind::number;
  DType dtype = DType::float64;
};

/// Returns the type that holds values of all these kinds, for sources whose values have no fixed
/// dtype. This is the first sufficient type in this order; nullopt if there are only nulls:
///
///   bool -> int64 -> float64 -> string
///
/// uint64 takes the place of int64 if there is a kBig integer and no negative integer. The type is
/// string if no dtype in this order represents every number exactly.
std::optional<ScalarType> type_of(ScalarKinds kinds) noexcept;

/// The type in which values are stored while more values may follow: adding kinds never requires a
/// conversion to a narrower type. Differs from type_of() only for columns with both negative and
/// kBig integers. For these, type_of() returns string unless there is a float. But a later float
/// would require float64, to which strings cannot be converted back. So growing_type_of() returns
/// float64 if it represents all of the integers exactly, else string.
std::optional<ScalarType> growing_type_of(ScalarKinds kinds) noexcept;

}  // namespace tenfold
