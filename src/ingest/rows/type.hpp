#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <tenfold/schema.hpp>

#include "ingest/promotion.hpp"

namespace tenfold {

/// The form of a column's values.
enum class RowForm : std::uint8_t {
  none,    ///< only nulls so far
  scalar,  ///< one number or string
  list,    ///< numbers or strings, or arrays of one shape
  json,    ///< lists of anything else, as JSON strings
};

/// Whether time stamps have a time zone.
enum class Clock : std::uint8_t {
  unknown,
  local,  ///< local time without a time zone
  utc,    ///< values with a time zone
};

/// The type of one value, or of all values of a column so far. Values with `kinds` are promoted by
/// growing_type_of(). Bytes, times, and tensors and arrays of other dtypes keep their type.
struct RowType {
  RowForm form = RowForm::none;
  bool has_elements = false;  ///< false: null, or lists that are empty or contain only nulls
  ScalarKinds kinds = 0;      ///< kinds of the elements, if they can be promoted
  ColumnKind kind = ColumnKind::number;
  DType dtype = DType::bool_;
  std::string unit{};  ///< dates, times and durations, which are int64: "us", "days", ...
  Clock clock = Clock::unknown;
  Shape inner{};          ///< lists: shape of each element
  bool has_null = false;  ///< lists: contain null

  static RowType scalar(DType dtype);
  static RowType text(ColumnKind kind);
  static RowType integer(std::int64_t value);
  /// An integer of at least 2^63.
  static RowType integer(std::uint64_t value);
  /// An integer that does not fit 64 bits.
  static RowType huge_integer();
  static RowType time(std::string unit, Clock clock);
  static RowType list();
  static RowType json();

  bool is_number() const noexcept { return kind == ColumnKind::number; }
  /// For lists: at least one is not empty.
  bool has_items() const noexcept { return has_elements || has_null; }
  /// True if a list may contain nulls, as NaN or in JSON.
  bool takes_nulls() const noexcept;
  /// "int64", "a list of float64[3]", "an empty list": for messages and reports.
  std::string text() const;
};

/// The type of `count` numbers.
RowType type_of_numbers(DType dtype, const std::byte* elements, std::int64_t count);

/// The narrowest type for the values of both types, to which later values may be added. Empty if
/// there is none, as for a number and a list, a string and bytes, counts of two units, or numbers
/// of two dtypes of which one is not promoted.
std::optional<RowType> join(const RowType& a, const RowType& b);

/// The final type once all values are known, by type_of().
RowType settled(const RowType& type);

}  // namespace tenfold
