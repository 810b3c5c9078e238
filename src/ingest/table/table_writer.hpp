#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/schema.hpp>

#include "dataset/table.hpp"
#include "os/fs/directory.hpp"

namespace tenfold {

/// The values of one column in some consecutive rows, in memory, laid out as they are stored. A row
/// without a value holds NaN in a float column, zeros in another of fixed rows, and nothing in one
/// whose rows have ends. The spans live as long as the call they are given to.
struct ColumnChunk {
  std::int64_t num_rows = 0;
  std::span<const std::byte> values{};  ///< of all rows, C order, one row after the other
  /// Columns with ends: where each row ends, counted from the chunk's start: in elements; of text
  /// in bytes; of ragged text in items.
  std::span<const std::int64_t> ends{};
  std::span<const std::int64_t> item_ends{};  ///< ragged text: where each item ends in `values`
  std::span<const std::uint8_t> valid{};      ///< nullable: 1 or 0 a row; empty: all are valid
};

/// A ColumnChunk that holds its memory itself.
struct OwnedChunk {
  std::int64_t num_rows = 0;
  std::vector<std::byte> values;
  std::vector<std::int64_t> ends;
  std::vector<std::int64_t> item_ends;
  std::vector<std::uint8_t> valid;

  ColumnChunk view() const { return {num_rows, values, ends, item_ends, valid}; }
};

class TableWriter;

struct TableWriterOptions {
  bool overwrite = true;       ///< false: Error(io) with errno EEXIST if something is at `path`
  bool durable = true;         ///< on the device when commit() returns
  int num_threads = 0;         ///< that wait for the device in commit(); 0: min(8, cores)
  Monitor* monitor = nullptr;  ///< may stop commit(); bytes are reported by who reads the source
  std::int64_t expected_rows = 0;  ///< that will be appended at least: they must fit on the disk
  /// Called by commit() when all rows are there and before anything is published: what is made of
  /// them, and checked.
  std::function<void(TableWriter&)> before_commit{};
};

/// A data set being written beside `path`, in bounded memory, published at once by commit();
/// destroyed before that, nothing is left. What an earlier process that was killed left behind goes
/// first. The columns lie as docs/datasets.md says, with the schema in the notes and `%checksums`.
///
/// Thread safety: one thread at a time.
class TableWriter {
 public:
  /// The leaves of `schema` are named anew, after its columns. Throws Error(io) with errno EEXIST
  /// if what is at `path` is no tree that tenfold may replace, with ENOSPC if the expected rows
  /// cannot fit; Error(invalid_argument) for a column whose name makes no file name.
  TableWriter(const Path& path, Schema schema, const TableWriterOptions& options = {});
  TableWriter(const TableWriter&) = delete;
  TableWriter& operator=(const TableWriter&) = delete;
  ~TableWriter();

  /// One chunk for each column of schema(), of equal num_rows. Rows come in the order of the calls.
  /// Throws Error(invalid_argument) for a chunk whose parts contradict each other; nothing is
  /// appended then.
  void append(std::span<const ColumnChunk> chunks);

  /// The same for one column, for a source that gives one column's rows after another's. commit()
  /// throws Error(invalid_argument) if the columns have not as many rows then.
  void append(std::size_t index, const ColumnChunk& chunk);

  /// Of the column that has most.
  std::int64_t num_rows() const noexcept;
  std::size_t num_columns() const noexcept;
  /// With names of leaves that differ: after columns were changed it takes time for all of them.
  const Schema& schema() const;

  /// Adds columns, nullable if there are rows already, in which they have no value.
  void add_columns(std::vector<Column> columns);

  /// Puts the columns into another order: `order[i]` is the one that comes as the i-th.
  void reorder(std::span<const std::size_t> order);

  /// Makes column `index` another one: of another dtype, nullable, ragged, text. `convert` gets the
  /// stored rows block by block and returns them as the new column stores them. It may be empty if
  /// the new column is the old one made nullable, which costs a byte a row.
  void change_column(std::size_t index, Column column,
                     const std::function<OwnedChunk(const ColumnChunk&)>& convert);

  /// Appends text to a file of that name in the folder, beside the columns.
  void append_text(std::string_view file_name, std::string_view text);

  /// The rows of a column so far, mapped.
  StoredColumn map_column(std::size_t index);

  /// Begins an unbatched tensor [0, *inner] that is no column, called `name`, or like it where that
  /// is taken. Returns its number.
  std::size_t begin_extra(std::string_view name, DType dtype, Shape inner);
  void restart_extra(std::size_t number);
  void append_extra(std::size_t number, std::span<const std::byte> bytes);
  const std::string& extra_name(std::size_t number) const;
  /// A member of the schema document beside its columns.
  void set_schema_member(std::string_view name, Value value);

  /// The folder that is being written, for files that go before commit().
  os::Directory& folder() noexcept;

  /// Writes metadata, notes and checksums, and replaces what is at `path` by one system call.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenfold
