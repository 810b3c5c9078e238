#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <tenfold/schema.hpp>

#include "ingest/scalar_kinds.hpp"

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

/// The type of one value, or of all values of a column so far. Values with `kinds` are promoted by
/// growing_type_of(); tensors and arrays of other dtypes, bytes and times stay what they are.
struct RowType {
  RowForm form = RowForm::none;
  bool has_elements = false;  ///< false: null, or lists of nulls or of nothing
  ScalarKinds kinds = 0;      ///< of the elements, if they can be promoted
  ColumnKind kind = ColumnKind::number;
  DType dtype = DType::bool_;
  std::string unit{};  ///< of moments and spans of time, int64: "us", "days", ...
  Clock clock = Clock::unknown;
  Shape inner{};          ///< list: of each element
  bool has_null = false;  ///< list: null among the elements

  static RowType scalar(DType dtype);
  static RowType text(ColumnKind kind);
  static RowType integer(std::int64_t value);
  /// From 2^63 on.
  static RowType integer(std::uint64_t value);
  /// An integer that no 64 bits hold.
  static RowType huge_integer();
  static RowType time(std::string unit, Clock clock);
  static RowType list();
  static RowType json();

  bool is_number() const noexcept { return kind == ColumnKind::number; }
  /// Lists: some are not empty.
  bool has_items() const noexcept { return has_elements || has_null; }
  /// A list may have nulls: NaN says so, or JSON.
  bool takes_nulls() const noexcept;
  /// "int64", "list of float64[3]", "a list": for messages and reports.
  std::string text() const;
};

/// The type of so many numbers.
RowType type_of_numbers(DType dtype, const std::byte* elements, std::int64_t count);

/// The least type that holds values of both while more may come. Nothing if there is none: a number
/// beside a list, text beside bytes, counts of two units, arrays of two dtypes.
std::optional<RowType> join(const RowType& a, const RowType& b);

/// The type once all values are known, by type_of().
RowType settled(const RowType& type);

}  // namespace tenfold
