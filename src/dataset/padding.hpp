#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <tenfold/batch.hpp>
#include <tenfold/dataset.hpp>
#include <tenfold/schema.hpp>

namespace tenfold {

/// True if `options` pads the rows of `column`.
bool is_padded(const Column& column, const BatchOptions& options);
/// Throws Error(key_not_found) if a name in `options.pad` is not that of a ragged column of
/// numbers.
void check_pads(const Schema& schema, const BatchOptions& options);

/// Fills the end of ragged rows that are shorter than the longest row of their batch.
class Padding {
 public:
  /// Throws Error(invalid_argument) if the dtype of the column cannot represent `value`. Integer
  /// and bool dtypes must represent it exactly; other dtypes round it as torch does.
  Padding(const Column& column, const PadValue& value);

  /// Fills `into`, whose size is a multiple of the size of an element.
  void fill(std::span<std::byte> into) const;

 private:
  std::vector<std::byte> element_;  ///< the padding value in the dtype of the column
};

/// Throws Error(invalid_argument) if `options` pads a ragged column "x" and there is a column or
/// record "x.length", because the lengths of padded rows have that name in batches.
void refuse_length_names(const Schema& schema, const BatchOptions& options);

}  // namespace tenfold
