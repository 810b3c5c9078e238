#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tenfold/schema.hpp>

#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// What each element of a column was before it was promoted, so that its text, if the column ends
/// as one of text, is that of the value that came: `1` and not `1.0`, `true` and not `1`. Two bits
/// an element, and none as long as all elements of the column are of one kind.
class Origins {
 public:
  enum class Kind : std::uint8_t {
    same,
    integer,  ///< in columns of text: the text of a value that was no string
    boolean,
    null,  ///< in a list
  };

  /// Elements [0, count) were `kind`; call before the first element of another kind comes.
  void begin(std::int64_t count, Kind kind);
  bool is_kept() const noexcept { return kept_; }
  void push(Kind kind);
  /// Elements that are as they came become `kind`, as the column is promoted.
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

/// Elements of one row's value: the product of `shape`.
std::int64_t elements_per_row(const Shape& shape);

/// A number as Python's json.dumps writes it.
std::string number_text(DType dtype, const std::byte* element,
                        Origins::Kind origin = Origins::Kind::same);

/// The missing value of a column of fixed rows: NaN in float columns, else zeros.
void fill_null(DType dtype, std::byte* elements, std::int64_t count);

/// The rows of `chunk`, stored as `from` is, as `to` stores them. Known are the promotions:
///
///   numbers      to numbers of another dtype (as cast_elements), to text
///   fixed rows   to rows of unequal length, of numbers or of text
///   lists        to their JSON text, one a row
///   rows that are all null to anything
///
/// `origins`: of the elements of `from`. `position`: of the chunk's first element in `origins`, and
/// afterwards of the first one behind it; the elements of a list that is null are not counted.
/// Throws Error(invalid_argument) for any other pair.
OwnedChunk convert_chunk(const Column& from, const ColumnChunk& chunk, const Column& to,
                         const Origins* origins = nullptr, std::int64_t* position = nullptr);

}  // namespace tenfold
