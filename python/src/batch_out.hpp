#pragma once

#include <string>
#include <vector>

#include "common.hpp"

namespace tenfold::python {

/// Converts batches to dicts of arrays. A record of columns becomes a nested dict.
class BatchMaker {
 public:
  /// `ragged`: called with (values, offsets) for each ragged column of numbers in a batch, unless
  /// the column is padded; its result is the value of the column.
  BatchMaker(const Schema& schema, nb::object ragged);

  /// A batch: arrays [B, ...], results of `ragged`, and lists of str or bytes. Columns of lists of
  /// strings become lists of lists.
  nb::object batch(const Batch& batch) const;
  /// The only row of a batch: arrays without the batch dimension, str or bytes, or lists of these.
  nb::object row(const Batch& batch) const;

 private:
  nb::object value(const BatchColumn& column, bool is_row) const;
  nb::object dict_of(const Batch& batch, bool is_row) const;

  /// For each column, its path as Python keys: those of the enclosing records, then its own.
  std::vector<std::vector<nb::object>> keys_;
  /// For each column, the keys under which batches have its validity and its lengths. Null if
  /// another column has that key.
  std::vector<nb::object> valid_keys_;
  std::vector<nb::object> length_keys_;
  nb::object ragged_;
};

void bind_dataset(nb::module_& module);
void bind_batch_loader(nb::module_& module);
void bind_sparse_matrix(nb::module_& module);

/// Converts row indices: a list or tuple of ints, an int64 torch tensor of any device, or a
/// contiguous buffer of int64. Negative indices count from the end. Raises IndexError, with a
/// message that begins with `what`, for an index out of range, and TypeError for objects of other
/// types.
std::vector<std::int64_t> positions_from(nb::handle positions, std::int64_t size,
                                         const char* what = "row");

struct DatasetHandle {
  Dataset dataset;
};

/// `pad`: a dict from column name to padding value; its key None is for all other columns.
BatchOptions batch_options_from(nb::handle pad);

}  // namespace tenfold::python
