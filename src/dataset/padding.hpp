#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <tenfold/batch.hpp>
#include <tenfold/dataset.hpp>
#include <tenfold/schema.hpp>

namespace tenfold {

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

}  // namespace tenfold
