#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/schema.hpp>

#include "ingest/arrow/abi.hpp"
#include "ingest/bad_row.hpp"
#include "ingest/source_report.hpp"
#include "ingest/table/table_writer.hpp"

namespace tenfold {

struct ArrowIngestOptions {
  std::string where = "Arrow stream";  ///< for messages: the file, or the origin of the stream
  /// For messages: maps the index of a row in the stream to the file of the row and the index of
  /// the row in this file. Empty: messages name `where` and the index in the stream.
  std::function<SourceRow(std::int64_t row)> find_row{};
  std::optional<Schema> schema{};      ///< requested schema; if empty, it follows from the types
  std::vector<std::string> columns{};  ///< read only these columns; empty: all
  OnError on_error = OnError::raise;
  std::int64_t batch_rows = 0;    ///< greatest number of rows processed at a time; 0: 65,536
  std::uint64_t total_bytes = 0;  ///< expected size, for the monitor; 0: unknown
  TableWriterOptions table{};
};

/// Writes the record batches of an Arrow stream as a data set at `path`. Without a path, reads the
/// batches to determine the schema, and writes nothing. Unless options.schema is set, a column
/// becomes nullable with its first null; columns of Arrow's type null always are. Releases the
/// stream.
///
/// Throws Error(corrupt) if the stream violates the interface, as far as that can be checked.
/// Throws Error(io) with the message of the stream if the stream fails. Throws Error(unsupported)
/// for types that no column can store, and Error(key_not_found) for an unknown name in
/// options.columns. Throws Error(invalid_argument) for a column of the schema that the stream lacks
/// or has in another unit and, if on_error is `raise`, for a bad row.
SourceReport ingest_arrow(ArrowArrayStream& stream, const std::optional<Path>& path,
                          const ArrowIngestOptions& options);

/// Like ingest_arrow() above, for a source that provides its columns in several streams, so that
/// only a few of many columns have to be in memory. Row i of the data set is row i of each stream.
/// Reads the schemas of all streams. Then reads the batches of the streams that have a requested
/// column, one stream after another. `again`: streams with the same content for a second pass, or
/// none. A second pass is necessary to omit bad rows, because all bad rows are known only after the
/// last stream.
///
/// Also throws Error(corrupt) if the streams that are read differ in length. If on_error is not
/// `raise` and several streams have requested columns, also throws Error(invalid_argument) unless
/// `again` has as many streams as `streams`.
SourceReport ingest_arrow(std::span<ArrowArrayStream* const> streams,
                          std::span<ArrowArrayStream* const> again, const std::optional<Path>& path,
                          const ArrowIngestOptions& options);

}  // namespace tenfold
