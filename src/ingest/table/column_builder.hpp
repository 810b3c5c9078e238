#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/batch.hpp>
#include <tenfold/schema.hpp>

namespace tenfold {

/// The values of one column in some consecutive rows, in memory, in the stored layout. A row
/// without a value is empty in a ragged or string column; in other columns it is NaN (floats) or
/// zeros. The spans need to be valid only during the call that takes them.
struct ColumnChunk {
  std::int64_t num_rows = 0;
  std::span<const std::byte> values{};  ///< values of all rows, contiguous in row-major order
  /// End offset of each row, relative to the chunk. Counts bytes in string columns, items in ragged
  /// string columns, and elements in other ragged columns.
  std::span<const std::int64_t> ends{};
  std::span<const std::int64_t> item_ends{};  ///< ragged strings: end offset of each item in
                                              ///< `values`
  std::span<const std::uint8_t> valid{};      ///< nullable columns: 1 or 0 for each row; empty: all
                                              ///< are valid
};

/// A growing byte buffer that is not zeroed.
class GrowingBytes {
 public:
  GrowingBytes() = default;
  GrowingBytes(const GrowingBytes& other) { append(other); }
  GrowingBytes(GrowingBytes&& other) noexcept { swap(other); }
  GrowingBytes& operator=(GrowingBytes other) noexcept {
    swap(other);
    return *this;
  }
  ~GrowingBytes() = default;

  std::size_t size() const noexcept { return size_; }
  std::byte* data() const noexcept { return memory_.get(); }
  std::byte* begin() const noexcept { return data(); }
  std::byte* end() const noexcept { return data() + size_; }
  /// Changes the size; new bytes are uninitialised.
  void resize(std::size_t size) {
    if (size > capacity_) grow(size - size_);
    size_ = size;
  }
  void clear() noexcept { size_ = 0; }
  /// Appends `count` uninitialised bytes and returns them.
  std::byte* extend(std::size_t count) {
    if (count > capacity_ - size_) grow(count);
    std::byte* const begin = memory_.get() + size_;
    size_ += count;
    return begin;
  }
  void append(std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(extend(bytes.size()), bytes.data(), bytes.size());
  }
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  void reserve(std::size_t size) {
    if (size > capacity_) grow(size - size_);
  }
  /// Returns the bytes without copying them, and leaves this object empty.
  Buffer release();

 private:
  void grow(std::size_t count);
  void swap(GrowingBytes& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }

  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

/// Builds rows of a column in memory, in the stored layout; the members are those of ColumnChunk.
/// The caller appends a value to `values` (or writes it to row()) and ends the row. A caller that
/// has all rows may set the members instead.
struct ColumnBuilder {
  std::int64_t num_rows = 0;
  GrowingBytes values;
  std::vector<std::int64_t> ends;
  std::vector<std::int64_t> item_ends;
  std::vector<std::uint8_t> valid;  ///< rows beyond its end are valid, until finish()

  ColumnBuilder() = default;
  explicit ColumnBuilder(const Column& column) { set_layout(column); }
  /// Sets the layout of later rows; existing rows are not converted.
  void set_layout(const Column& column);

  bool has_ends() const noexcept { return has_ends_; }
  std::size_t row_bytes() const noexcept { return row_bytes_; }
  /// Bytes that a null adds to size_bytes().
  std::size_t null_bytes() const noexcept { return has_ends_ ? sizeof(std::int64_t) : row_bytes_; }
  bool is_valid(std::int64_t row) const noexcept {
    const auto at = static_cast<std::size_t>(row);
    return at >= valid.size() || valid[at] != 0;
  }
  /// Size of the values and end offsets.
  std::size_t size_bytes() const noexcept {
    return values.size() + (ends.size() + item_ends.size()) * sizeof(std::int64_t);
  }

  /// Memory of the current row; fixed-size rows only.
  std::byte* row() {
    const std::size_t begin = static_cast<std::size_t>(num_rows) * row_bytes_;
    if (values.size() == begin) values.extend(row_bytes_);
    return values.data() + begin;
  }
  /// Ends an item of a ragged string column.
  void end_item() { item_ends.push_back(static_cast<std::int64_t>(values.size())); }
  /// The end offset of a row that ends with the last value so far; ragged and string columns only.
  std::int64_t end_of_values() const noexcept {
    const std::size_t size = has_items_ ? item_ends.size() : values.size();
    return static_cast<std::int64_t>(unit_bytes_ == 1 ? size : size / unit_bytes_);
  }
  void end_row() {
    if (has_ends_) ends.push_back(end_of_values());
    ++num_rows;
  }
  void add_nulls(std::int64_t count);
  /// Removes the rows from `count` on, and a row that is not ended.
  void truncate(std::int64_t count);
  void clear();
  /// Extends `valid` to all rows, or clears it if all rows have a value.
  void finish();
  ColumnChunk view() const noexcept { return {num_rows, values, ends, item_ends, valid}; }

 private:
  bool has_ends_ = false;
  bool has_items_ = false;
  DType dtype_ = DType::uint8;
  std::size_t row_bytes_ = 0;   ///< bytes of a fixed-size row
  std::size_t unit_bytes_ = 1;  ///< bytes of the unit that end offsets count; 1 for items
};

/// Copies rows into the tensors of a BatchColumn.
BatchColumn batch_column(const Column& column, const ColumnChunk& rows);
/// Moves rows into the tensors of a BatchColumn: the values are not copied.
BatchColumn batch_column(const Column& column, ColumnBuilder rows);

/// Type of a column for messages: "float32[3]", "string", "int64[*]".
std::string type_text(const Column& column);
/// type_text(), followed by the unit if the column has one: "int64 (us)".
std::string described(const Column& column);

}  // namespace tenfold
