#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <tenfold/schema.hpp>

#include "ingest/table/part_file.hpp"
#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// Creates the file of a part: `unbatched` ones lie in a folder of their own.
using MakePart = std::function<std::unique_ptr<PartFile>(bool unbatched)>;

/// The files of one column, which grow row by row.
class ColumnWriter {
 public:
  ColumnWriter(Column column, const MakePart& make_part);

  const Column& column() const noexcept { return column_; }
  std::int64_t num_rows() const noexcept { return num_rows_; }
  /// Gives the parts the names that they have in `named`.
  void rename_leaves(const Column& named);

  /// Throws Error(invalid_argument) if the parts of the chunk contradict each other or the column.
  void check(const ColumnChunk& chunk) const;
  /// Appends rows that check() found right.
  void append(const ColumnChunk& chunk);
  /// Appends rows without a value.
  void append_nulls(std::int64_t num_rows);
  /// From now on rows may have no value; those there are have one.
  void make_nullable(const MakePart& make_part);

  /// Calls `use` with all rows, in blocks of a few MiB.
  void for_each_block(const std::function<void(const ColumnChunk&)>& use);

  /// One stored part: its file, and what it is in the tree.
  struct Stored {
    PartFile* file;
    KeyPath leaf;
    DType dtype;
    Shape shape;  ///< with `num_rows` rows, or as many elements as there are
    bool unbatched;
  };
  std::vector<Stored> stored(std::int64_t num_rows) const;

 private:
  void append_ends(PartFile& file, std::span<const std::int64_t> ends, std::int64_t base);
  std::vector<std::int64_t> read_ends(const PartFile& file, std::int64_t begin, std::int64_t end);

  Column column_;
  std::uint64_t element_bytes_;  ///< of a row's value, or of one of its elements
  std::unique_ptr<PartFile> values_;
  std::unique_ptr<PartFile> ends_;
  std::unique_ptr<PartFile> item_ends_;
  std::unique_ptr<PartFile> valid_;
  std::int64_t num_rows_ = 0;
  std::int64_t num_elements_ = 0;  ///< of all rows of unequal length; of text bytes
  std::int64_t num_items_ = 0;     ///< of ragged text
  std::vector<std::int64_t> scratch_;
};

}  // namespace tenfold
