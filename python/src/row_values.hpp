#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tenfold/value.hpp>

#include "common.hpp"
#include "ingest/rows/type.hpp"

namespace tenfold::python {

/// A value that has no place: which column, what was expected, what was found.
struct BadRow {
  std::string column;
  std::string what;
  std::int64_t row = -1;  ///< of columns that were added at once
};

/// A column holds records: add its rows one by one.
struct RowsNeeded {};

/// The UTF-8 of a str, without a copy if it is ASCII; nothing is kept in the str, but for what
/// ascii_text() keeps.
class Utf8 {
 public:
  /// `text` outlives this object. Throws BadRow for lone surrogates.
  explicit Utf8(PyObject* text);
  std::string_view view() const noexcept { return view_; }

 private:
  nb::object encoded_;
  std::string_view view_;
};

/// An integer: of 64 bits, or as its digits.
struct Integer {
  enum class Size : std::uint8_t { int64, uint64, huge } size = Size::int64;
  std::int64_t value = 0;
  std::uint64_t large = 0;
};
Integer integer_of(PyObject* number);

/// A moment, or a span of time.
struct Time {
  std::optional<std::int64_t> count;  ///< nothing: "not a time" of numpy and pandas, which is null
  std::string unit;
  Clock clock = Clock::unknown;
};
/// What `tenfold.dataset._ingest.values.time_count` says of an object of the module datetime, of
/// numpy or pandas; nothing for other objects. Throws BadRow for what no int64 counts.
std::optional<Time> time_from(nb::handle object);

/// A dense tensor or array in main memory, of any library; nothing for other objects. Arrays of
/// text and objects are none.
std::optional<Tensor> array_from(nb::handle object);

/// What `tenfold.dataset._ingest.values.simple` makes of an object that is none of Python's own
/// types and no array. Throws BadRow if it is nothing.
nb::object simple_value(nb::handle object);

/// "int64 3", "a list of string", "dict": for messages.
std::string found_text(nb::handle object);

/// The value as json.dumps writes it. Throws BadRow for what JSON lacks.
std::string json_of(nb::handle object);

/// What a value is. Throws BadRow (without a column) for what no column holds.
RowType row_type_of(nb::handle value);

}  // namespace tenfold::python
