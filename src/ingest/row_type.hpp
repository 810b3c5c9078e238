#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/ingest.hpp>
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

/// An integer that does not fit 64 bits.
struct HugeInteger {
  std::string digits{};
};

struct RowText {
  ColumnKind kind = ColumnKind::string;  ///< string or bytes
  std::string_view text{};
};

/// A date, time stamp, time of day or duration.
struct RowTime {
  std::int64_t count = 0;
  std::string unit{};
  Clock clock = Clock::unknown;
};

/// The type of one value, or of all values of a column so far. Values with `kinds` are promoted by
/// growing_type_of(). Bytes, times, and tensors and arrays of dtypes other than bool, int64, uint64
/// and float64 keep their type.
struct RowType {
  RowForm form = RowForm::none;
  bool has_elements = false;  ///< false: only nulls, empty lists and lists of nulls so far
  ScalarKinds kinds = 0;      ///< kinds of the elements, if they can be promoted
  ColumnKind kind = ColumnKind::number;
  DType dtype = DType::bool_;
  std::string unit{};  ///< dates, times and durations, which are int64: "us", "days", ...
  Clock clock = Clock::unknown;
  Shape inner{};          ///< lists: shape of each element
  bool has_null = false;  ///< lists: at least one contains a null

  /// The type of scalars of these kinds; of form `none` if there are only nulls.
  static RowType of_kinds(ScalarKinds kinds);
  static RowType scalar(DType dtype);
  static RowType text(ColumnKind kind);
  static RowType list();
  static RowType json();

  /// The type of a value: null, a scalar, or an array of numbers.
  static RowType of(std::nullptr_t) { return {}; }
  static RowType of(bool) { return scalar(DType::bool_); }
  static RowType of(std::int64_t value) { return of_kinds(kinds_of(value)); }
  /// The type of an integer of at least 2^63.
  static RowType of(std::uint64_t value) { return of_kinds(kinds_of(value)); }
  static RowType of(double) { return scalar(DType::float64); }
  static RowType of(const HugeInteger& integer);
  static RowType of(const RowText& text) { return RowType::text(text.kind); }
  static RowType of(const RowTime& time);
  /// The type of a contiguous array or, if `is_rows`, of the values along its first dimension.
  /// Throws BadValue (without a column) for lists whose elements are empty arrays.
  static RowType of(const Tensor& array, bool is_rows = false);

  bool is_number() const noexcept { return kind == ColumnKind::number; }
  /// For lists: true if at least one of them is not empty.
  bool has_items() const noexcept { return has_elements || has_null; }
  /// True if a list may contain nulls, as NaN or in JSON.
  bool takes_nulls() const noexcept;
  /// "int64", "a list of float64[3]", "an empty list": for messages and reports.
  std::string text() const;
};

/// The type of `count` numbers.
RowType type_of_numbers(DType dtype, const std::byte* elements, std::int64_t count);

/// The narrowest type that holds the values of both types while more values may follow. nullopt if
/// there is none: for example, for a number and a list, for a string and bytes, for times in
/// different units, or for different dtypes if one of them cannot be promoted.
std::optional<RowType> join(const RowType& a, const RowType& b);

/// The final type once all values are known, by type_of().
RowType settled(const RowType& type);

/// The promotion to report for a column of a settled() type, if there is one. `first`: text() of
/// the type of the first value; empty if it is not known. Bools that became numbers and lists that
/// are stored as JSON are always reported.
std::optional<Promotion> promotion_of(std::string column, const std::string& first,
                                      const RowType& type);

/// The column, without a path, that stores values of this type. `length`: the common length of all
/// lists, so that lists of numbers become rows of fixed size; 0 if the lists differ in length or
/// are empty.
Column column_of(const RowType& type, std::int64_t length = 0);

/// The properties that determine the type of one list, or of all lists of a column.
class ListTypes {
 public:
  /// Adds a list inside `depth` lists.
  void add_list(std::size_t depth, std::int64_t length);
  /// Adds one or more items of these kinds, inside `depth` lists.
  void add_items(std::size_t depth, ScalarKinds kinds) {
    kinds_ |= kinds;
    if (depth_of_items_ == 0) depth_of_items_ = depth;
    if (depth_of_items_ != depth) is_uneven_ = true;
  }
  /// Adds an item of any type. `length`: if the item is an array, which has form `list`, the length
  /// of its first dimension. Returns false, and ignores the type of the item, if no type holds this
  /// item and all earlier items. This is an error unless is_uneven().
  bool add_item(std::size_t depth, RowType item, std::int64_t length = 0);
  /// Adds an item that is an object.
  void add_object() noexcept { is_uneven_ = true; }
  /// True if there are objects, or both lists and scalars, which only JSON can hold.
  bool is_uneven() const noexcept { return is_uneven_; }
  /// Adds the lists of `later`, whose items must have been added by add_items().
  void merge(const ListTypes& later);

  /// A list of scalars or of arrays of one shape; JSON for other lists.
  RowType type() const;
  /// The common length of the outermost lists; 0 if they differ.
  std::int64_t length() const noexcept;

 private:
  struct Lengths {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int64_t most = -1;
  };

  RowType item_type() const {
    return others_.form == RowForm::none ? RowType::of_kinds(kinds_) : others_;
  }

  std::vector<Lengths> levels_;     ///< lengths of lists, of lists in lists, ...
  ScalarKinds kinds_ = 0;           ///< kinds of the items, if they can be promoted
  RowType others_{};                ///< type of the items, if they cannot be promoted
  std::size_t depth_of_items_ = 0;  ///< nesting depth of items, from 1; 0: no item was seen
  bool is_uneven_ = false;
};

}  // namespace tenfold
