#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/schema.hpp>

#include "ingest/arrow/abi.hpp"
#include "ingest/source_report.hpp"
#include "ingest/table/table_writer.hpp"

namespace tenfold {

struct ArrowIngestOptions {
  std::string where = "Arrow stream";  ///< for messages: the file, or what the stream is of
  std::optional<Schema> schema{};      ///< asked for; nothing: what the types say
  std::vector<std::string> columns{};  ///< of those only these; empty: all
  OnError on_error = OnError::raise;
  std::int64_t batch_rows = 0;    ///< looked at together; 0: 65,536
  std::uint64_t total_bytes = 0;  ///< about as many are coming, for the monitor; 0: not known
  TableWriterOptions table{};
};

/// The record batches of a stream of Arrow's as a data set at `path`, or, without one, what the
/// data set would be. Columns become nullable with the first null. The stream is released.
/// Throws Error(corrupt) if the stream breaks the rules of the interface as far as they can be
/// checked, Error(io) with the producer's own words if it fails, Error(unsupported) for types that
/// no column holds, Error(invalid_argument) for a row that does not fit the schema.
SourceReport ingest_arrow(ArrowArrayStream& stream, const std::optional<Path>& path,
                          const ArrowIngestOptions& options);

/// The same of a source that gives some columns at a time, so that few of many have to be in
/// memory: row i of the data set is row i of each stream. One is read to its end before the next
/// one, and none that has no column that is wanted. `again`: the same streams once more, or
/// nothing; they are read if rows are left out, because which ones is known after the last stream
/// only. Also throws Error(corrupt) if they have not as many rows, Error(invalid_argument) if rows
/// are to be left out of several streams without `again`.
SourceReport ingest_arrow(std::span<ArrowArrayStream* const> streams,
                          std::span<ArrowArrayStream* const> again, const std::optional<Path>& path,
                          const ArrowIngestOptions& options);

}  // namespace tenfold
