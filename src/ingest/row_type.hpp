#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <tenfold/schema.hpp>

namespace tenfold {

/// How the value of a column lies in a row.
enum class RowForm : std::uint8_t {
  none,    ///< only nulls so far
  scalar,  ///< one number or text
  list,    ///< numbers or texts, or arrays of one shape
  json,    ///< lists of anything else, as text
};

/// What a moment is counted from.
enum class Clock : std::uint8_t {
  unknown,
  local,  ///< a clock on some wall
  utc,    ///< values that told their time zone
};

/// What one value is, or all values of a column so far are. The types of Python's plain values are
/// promoted, null -> bool -> int64 -> float64 -> string (and uint64 for integers from 2^63); those
/// of tensors and arrays stay what they are.
struct RowType {
  RowForm form = RowForm::none;
  bool has_elements = false;  ///< false: null, or lists that are empty
  ColumnKind kind = ColumnKind::number;
  DType dtype = DType::bool_;
  std::string unit{};  ///< of moments and spans of time, int64: "us", "days", ...
  Clock clock = Clock::unknown;
  Shape inner{};             ///< list: of each element
  bool has_null = false;     ///< list: null among the elements, which is NaN
  bool is_negative = false;  ///< there is an integer below 0
  bool is_inexact = false;   ///< there is an integer that float64 cannot hold

  static RowType scalar(DType dtype);
  static RowType text(ColumnKind kind);
  static RowType integer(std::int64_t value);
  /// From 2^63 on.
  static RowType integer(std::uint64_t value);
  static RowType time(std::string unit, Clock clock);
  static RowType list();
  static RowType json();

  bool is_number() const noexcept { return kind == ColumnKind::number; }
  /// "int64", "list of float64[3]", "a list": for messages and reports.
  std::string text() const;
};

/// True if a double holds exactly this integer.
inline bool is_exact(std::int64_t value) noexcept {
  constexpr std::int64_t kAllExact = std::int64_t{1} << 53;
  if (value >= -kAllExact && value <= kAllExact) return true;
  const auto rounded = static_cast<double>(value);
  return rounded < 0x1p63 && static_cast<std::int64_t>(rounded) == value;
}

/// The type of so many numbers, and what is to be known of them if they are integers.
RowType type_of_numbers(DType dtype, const std::byte* elements, std::int64_t count);

/// The least type that holds values of both. Nothing if there is none: a number beside a list, text
/// beside bytes, counts of two units, a null in a list of integers, arrays of two dtypes.
std::optional<RowType> join(const RowType& a, const RowType& b);

}  // namespace tenfold
