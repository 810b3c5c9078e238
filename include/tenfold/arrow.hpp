#pragma once

#include <cstdint>

#include <tenfold/dataset.hpp>

// The struct of Arrow's C stream interface. The headers of Arrow define it, and so do the headers
// of other libraries that use the interface.
extern "C" {
struct ArrowArrayStream;
}

namespace tenfold {

/// Options of export_arrow_stream().
struct ArrowExportOptions {
  std::int64_t batch_rows = std::int64_t{64} << 10;  ///< greatest number of rows per record batch
  /// Copies all elements, so that the exported arrays do not depend on the file.
  bool copy = false;
};

/// Exports the rows of a data set as a stream of Arrow record batches, in row order.
///
///     ArrowArrayStream stream;
///     tenfold::export_arrow_stream(ds, &stream);
///     auto reader = arrow::ImportRecordBatchReader(&stream);
///
/// If the rows are contiguous in a single part of the data set and not in a circular buffer, the
/// arrays point into the tensors of the data set, such as mappings of files. These tensors stay
/// alive until the arrays are released. Otherwise, the rows are copied, batch by batch. Rows are
/// also copied with ArrowExportOptions::copy, and in columns whose rows have other bytes between
/// them. Bools, validity and offsets are always copied, because Arrow stores them in another
/// layout.
///
/// These columns have another type in Arrow:
///
///     strings               large_string
///     bytes                 large_binary
///     ragged rows           large_list
///     rows of fixed shape   nested fixed_size_list
///     a record              struct
///
/// A missing value of a nullable column is a null. The unit of a column becomes the metadata "unit"
/// of its field.
///
/// As Arrow's interface specifies, `*out` is overwritten, and the consumer must release it. If a
/// batch is damaged, get_next returns EIO, and get_last_error returns the message. Rows that are
/// appended after this call are not part of the stream.
///
/// Throws Error(unsupported), naming the column, for a dtype that Arrow does not have (bfloat16,
/// float8, float4, complex). Also throws it for a row shape with a dimension above 2^31 - 1, and
/// for a name with a null character. Throws Error(invalid_argument) for batch_rows below 1.
///
/// Thread safety: only one thread at a time may call functions of the stream, as Arrow requires.
/// The stream's arrays may be used from any thread.
TENFOLD_API void export_arrow_stream(const Dataset& rows, ArrowArrayStream* out,
                                     const ArrowExportOptions& options = {});

}  // namespace tenfold
