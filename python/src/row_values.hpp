#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/value.hpp>

#include "common.hpp"
#include "ingest/row_fault.hpp"
#include "ingest/row_type.hpp"

namespace tenfold::python {

/// Thrown by add_columns() if a column contains records. The caller then adds the rows one by one.
struct RowsNeeded {};

/// The UTF-8 of a str, without a copy if the str is ASCII. Only ascii_text() may cache something in
/// the str.
class Utf8 {
 public:
  /// `text` must outlive this object. Throws BadValue for lone surrogates.
  explicit Utf8(PyObject* text);
  std::string_view view() const noexcept { return view_; }

 private:
  nb::object encoded_;
  std::string_view view_;
};

/// An integer: `value` if it fits int64, `large` if it only fits uint64. For any other integer,
/// `size` is `huge` and the number is not stored.
struct Integer {
  enum class Size : std::uint8_t { int64, uint64, huge } size = Size::int64;
  std::int64_t value = 0;
  std::uint64_t large = 0;
};
Integer integer_of(PyObject* number);
/// The decimal digits of an int. Throws BadValue if there are more digits than Python converts.
std::string digits_of(nb::handle integer);

/// A time stamp or duration.
struct Time {
  std::optional<std::int64_t> count;  ///< empty for NaT (not a time) of numpy and pandas, which
                                      ///< becomes null
  std::string unit;
  Clock clock = Clock::unknown;
};
/// Converts a time object of the datetime module, numpy or pandas, by
/// `tenfold.dataset._ingest.values.time_count`. Empty for other objects. Throws BadValue for a time
/// that cannot be converted, or whose count does not fit int64.
std::optional<Time> time_from(nb::handle object);

/// Converts a dense tensor or array of any library, or a complex number, to a contiguous tensor in
/// main memory, without a copy if possible. Empty for other objects, such as arrays of strings and
/// objects.
std::optional<Tensor> array_from(nb::handle object);

/// Converts an object that is neither of a built-in type of Python nor an array, by
/// `tenfold.dataset._ingest.values.simple`. Throws BadValue if the object cannot be converted.
nb::object simple_value(nb::handle object);

/// True for arrays, and for other objects that only simple_value() may convert.
bool is_convertible(nb::handle object);

/// True for a Decimal, which has no column type.
bool is_decimal(nb::handle object);
inline constexpr const char* kDecimalRemedy = "; convert it with float() or str()";

/// Maximum nesting of lists. A list with more levels is assumed to contain itself.
inline constexpr std::size_t kMaxListDepth = 64;

/// The indices that lead to the first None in nested lists or tuples, the outermost first. Empty if
/// there is no None in the first `levels` levels.
std::vector<std::int64_t> indices_of_none(nb::handle value, std::size_t levels);

/// Describes a value for messages: "null", "3", "a list of string of length 2", "an object" (a
/// dict).
std::string found_text(nb::handle object);

/// Formats a value as json.dumps() does. Throws BadValue for a value that JSON cannot represent.
std::string json_of(nb::handle object);

/// The type of an array or, if `is_rows`, of the values along its first dimension. Throws BadValue
/// (without a column) for lists whose elements are empty arrays.
RowType type_of_array(const Tensor& tensor, bool is_rows = false);

/// The type of a value. Throws BadValue (without a column) if no column can hold it.
RowType row_type_of(nb::handle value);

}  // namespace tenfold::python
