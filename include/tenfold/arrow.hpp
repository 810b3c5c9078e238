#pragma once

#include <cstdint>

#include <tenfold/dataset.hpp>

// Arrow's C stream interface: defined by Arrow's headers, or by those of any of its consumers.
extern "C" {
struct ArrowArrayStream;
}

namespace tenfold {

struct ArrowExportOptions {
  std::int64_t batch_rows = std::int64_t{64} << 10;  ///< rows of a record batch, at most
  /// Elements are copied, so that what is exported is independent of the file.
  bool copy = false;
};

/// Exports the rows of a data set as a stream of record batches of Arrow, in their order.
///
///   ArrowArrayStream stream;
///   tenfold::export_arrow_stream(ds, &stream);
///   auto reader = arrow::ImportRecordBatchReader(&stream);
///
/// Where the rows of a column follow each other in the file, its arrays point into the mapping,
/// which they keep until they are released; else the rows are gathered, batch by batch. Bools,
/// validity and offsets are always copied, as Arrow has bits and offsets of its own.
///
/// A string is a large_string, bytes are large_binary, rows of unequal length a large_list, rows of
/// a shape nested fixed_size_lists, a nested record a struct. A nullable column takes its validity
/// from its valid leaf. The unit of a column is the metadata "unit" of its field.
///
/// `out` is overwritten; its consumer releases it. Damage that a batch meets is the error of its
/// get_next (EIO, with get_last_error). Rows that are appended later are not part of the stream.
///
/// Throws Error(unsupported), naming the column, for a dtype that Arrow does not have (bfloat16,
/// float8, float4, complex), Error(invalid_argument) for batch_rows below 1.
///
/// Thread safety: the stream as Arrow requires it, one call at a time; arrays from any thread.
TENFOLD_API void export_arrow_stream(const Dataset& rows, ArrowArrayStream* out,
                                     const ArrowExportOptions& options = {});

}  // namespace tenfold
