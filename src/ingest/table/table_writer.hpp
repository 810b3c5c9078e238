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
#include "ingest/table/column_builder.hpp"
#include "os/fs/directory.hpp"

namespace tenfold {

class TableWriter;

struct TableWriterOptions {
  bool overwrite = true;           ///< false: Error(io) with errno EEXIST if `path` exists
  bool durable = true;             ///< the data set is durable when commit() returns
  int num_threads = 0;             ///< threads that sync files in commit(); 0: TENFOLD_NUM_THREADS,
                                   ///< or min(8, cores)
  Monitor* monitor = nullptr;      ///< polled by a durable commit(), which it can cancel
  std::int64_t expected_rows = 0;  ///< lower bound of the rows to come, which must fit on the disk
  /// Called by commit() after all rows were appended and before anything is published, to check
  /// them or derive data from them.
  std::function<void(TableWriter&)> before_commit{};
};

/// Writes a data set next to `path`. commit() publishes it at `path` with a FolderReplacement,
/// which is atomic where the file system can exchange folders. The memory in use does not grow with
/// the number of rows, except for the checksums: 8 bytes for each 16 MiB of a file. If the writer
/// is destroyed before commit(), nothing remains except folders above `path` that it created. The
/// constructor removes the leftovers of a process that crashed while it replaced `path`. The schema
/// is stored in the metadata sidecar
/// (`%notes.json`), the checksums in `%checksums`; docs/datasets.md describes the layout of
/// columns. If a write fails, for example because the disk is full, files may be incomplete: later
/// calls that write rows, and commit(), throw Error(invalid_argument).
///
/// Thread safety: one thread at a time.
class TableWriter {
 public:
  /// The leaves of `schema` get new names, derived from the names of the columns. Throws Error(io)
  /// (EEXIST) if `path` exists and `overwrite` is false, or if `path` is not a tree that tenfold
  /// may replace. Throws Error(io) (ENOSPC) if the expected rows cannot fit on the disk. Throws
  /// Error(invalid_argument) for a column name that is not UTF-8, or whose file name would be too
  /// long.
  TableWriter(const Path& path, Schema schema, const TableWriterOptions& options = {});
  TableWriter(const TableWriter&) = delete;
  TableWriter& operator=(const TableWriter&) = delete;
  ~TableWriter();

  /// Appends one chunk for each column of schema(), all with the same num_rows. Throws
  /// Error(invalid_argument), and appends nothing, if the number of chunks or their num_rows are
  /// wrong, or if the parts of a chunk contradict each other or the column.
  void append(std::span<const ColumnChunk> chunks);

  /// Appends to one column only, for a source that provides columns sequentially. commit() throws
  /// Error(invalid_argument) if the columns have different numbers of rows.
  void append(std::size_t index, const ColumnChunk& chunk);

  /// The number of rows of the longest column.
  std::int64_t num_rows() const noexcept;
  std::size_t num_columns() const noexcept;
  /// The schema, with unique names of leaves. The first call after columns were added, changed or
  /// reordered takes time proportional to the number of all columns.
  const Schema& schema() const;

  /// Adds columns. If the table has rows already, the columns must be nullable, and get a null for
  /// each of these rows. Throws Error(invalid_argument) otherwise, and for a name that is already
  /// used.
  void add_columns(std::vector<Column> columns);

  /// Reorders the columns: `order[i]` is the present index of the column that becomes the i-th.
  void reorder(std::span<const std::size_t> order);

  /// Makes column `index` nullable; the rows appended so far count as valid. This costs a byte per
  /// row. Does nothing if the column is already nullable.
  void make_nullable(std::size_t index);

  /// Changes the type of column `index`: to another dtype, or to nullable, ragged or string.
  /// `convert` gets the stored rows in blocks, and returns each block in the layout of the new
  /// column. A block has at most 65,536 rows and 4 MiB of values, unless it is a single larger row.
  void change_column(std::size_t index, Column column,
                     const std::function<ColumnBuilder(const ColumnChunk&)>& convert);

  /// Appends text to a file of that name in the folder.
  void append_text(std::string_view file_name, std::string_view text);

  /// Maps the rows of a column that were appended so far.
  StoredColumn map_column(std::size_t index);

  /// Starts an unbatched tensor that is not a column. Its shape is [0, *inner] until append_extra()
  /// adds rows. It is called `name`, or `name~2`, `name~3`, ... if that name is taken. Returns the
  /// index of the tensor among the extra tensors.
  std::size_t begin_extra(std::string_view name, DType dtype, Shape inner);
  /// Removes all rows of an extra tensor.
  void restart_extra(std::size_t number);
  /// Appends rows to an extra tensor, as bytes in row-major order.
  void append_extra(std::size_t number, std::span<const std::byte> bytes);
  const std::string& extra_name(std::size_t number) const;
  /// Adds a member to the schema document. Call it once for each name.
  void set_schema_member(std::string_view name, Value value);

  /// The folder that is being written, for files that are added before commit().
  os::Directory& folder() noexcept;

  /// Calls TableWriterOptions::before_commit, writes metadata, its sidecar and checksums, and
  /// replaces `path` like formats::folder::publish_folder(). A second call throws
  /// Error(invalid_argument), and so do columns that refuse_ambiguous_names() refuses.
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tenfold
