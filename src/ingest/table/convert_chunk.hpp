#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/schema.hpp>
#include <tenfold/value.hpp>

#include "ingest/table/column_builder.hpp"

namespace tenfold {

/// The type of each element before promotion. If the column becomes a string column, elements are
/// formatted as values of their type in the source: `1` and not `1.0`, `true` and not `1`. Uses two
/// bits per element, and nothing while all elements of the column have one kind.
class Origins {
 public:
  enum class Kind : std::uint8_t {
    same,     ///< the type of the column
    integer,  ///< an integer; in string columns: any value that was not a string
    boolean,
    null,  ///< a null in a list
  };

  /// Starts recording: elements [0, count) have kind `kind`. Does nothing if is_kept(). Call before
  /// the first element of another kind is added.
  void begin(std::int64_t count, Kind kind);
  bool is_kept() const noexcept { return kept_; }
  void push(Kind kind);
  /// Appends `count` elements of kind `same`.
  void push_same(std::int64_t count);
  /// Changes the kind of all elements of kind `same` to `kind`. Call when the column is promoted.
  void become(Kind kind);
  void resize(std::int64_t count);
  Kind at(std::int64_t element) const noexcept;
  bool has_nulls() const noexcept { return has_nulls_; }

 private:
  bool kept_ = false;
  bool has_nulls_ = false;
  std::int64_t size_ = 0;
  std::vector<std::uint8_t> bits_;
};

/// A number or bool as a JSON value.
Value number_value(DType dtype, const std::byte* element,
                   Origins::Kind origin = Origins::Kind::same);

/// Formats a number as Python's json.dumps does.
std::string number_text(DType dtype, const std::byte* element,
                        Origins::Kind origin = Origins::Kind::same);

/// Converts the rows of `chunk` from the layout of column `from` to that of `to`. Supported
/// promotions:
///
///   - numbers: to numbers of another dtype (as cast_elements), or to strings
///   - lists of numbers: to lists of numbers of another dtype, or to one JSON string per row
///   - lists of numbers in one dimension: to lists of strings
///   - lists of strings: to one JSON string per row
///   - rows of fixed size with a shape: to ragged rows
///   - rows that are all null: to any column
///
/// A list is a ragged row, or a row of fixed size with a shape. The caller ensures that shapes of
/// elements agree. Throws Error(invalid_argument) for any other promotion.
///
/// `origins`: the origins of the elements of `from`. `position`: the index in `origins` of the
/// chunk's first element; a conversion that reads origins advances it past the chunk's last
/// element. A null scalar has an origin; a null list has none.
ColumnBuilder convert_chunk(const Column& from, const ColumnChunk& chunk, const Column& to,
                            const Origins* origins = nullptr, std::int64_t* position = nullptr);

}  // namespace tenfold
