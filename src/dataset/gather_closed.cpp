#include "dataset/gather_closed.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/fixed_rows.hpp"

namespace tenfold {
namespace {

/// The index of the part that contains a row: the last part that begins at or before the row.
std::size_t part_of(const std::vector<DatasetPart>& parts, std::int64_t row) {
  const auto after = std::ranges::upper_bound(parts, row, {}, &DatasetPart::first_row);
  return static_cast<std::size_t>(after - parts.begin()) - 1;
}

/// Rows that need at most kMaxOpen parts, and these parts, opened.
class PartLocations {
 public:
  explicit PartLocations(const DatasetState& state)
      : state_(state), places_(state.parts.size(), kNone) {
    few_.schema = state.schema;
    few_.pool = state.pool;
  }

  /// Adds a row. Returns false, without adding the row, if more than kMaxOpen parts would be open.
  bool add(std::int64_t row) {
    const std::size_t number = part_of(state_.parts, row);
    if (places_[number] == kNone) {
      if (few_.parts.size() == ClosedTables::kMaxOpen) return false;
      places_[number] = static_cast<std::int64_t>(few_.parts.size());
      DatasetPart part = state_.parts[number].opened();
      part.first_row = next_row_;
      next_row_ += part.num_rows();
      few_.parts.push_back(std::move(part));
    }
    const DatasetPart& part = few_.parts[static_cast<std::size_t>(places_[number])];
    rows_.push_back(row - state_.parts[number].first_row + part.first_row);
    return true;
  }

  std::size_t num_rows() const noexcept { return rows_.size(); }
  Batch batch(const BatchOptions& options) const { return gather(few_, rows_, options); }

 private:
  static constexpr std::int64_t kNone = -1;

  const DatasetState& state_;
  DatasetState few_;
  std::vector<std::int64_t> places_;  ///< for each part of the state, its index in few_.parts
  std::vector<std::int64_t> rows_;    ///< row numbers in few_
  std::int64_t next_row_ = 0;
};

/// Returns a + b. Throws Error(corrupt) on overflow, which only elements of 0 bytes can cause.
std::int64_t sum_of(std::int64_t a, std::int64_t b, const Column& column) {
  if (b <= std::numeric_limits<std::int64_t>::max() - a) return a + b;
  throw base::corrupt(base::Where("", "data set"))
      .part("column ", base::quote(column.name()))
      .expected("fewer than 2^63 elements in all rows")
      .found("more");
}

/// Concatenates one tensor of a column over all batches.
Tensor join_rows(const std::vector<Batch>& batches, std::size_t column,
                 const Tensor BatchColumn::* member) {
  const Tensor& first = batches.front().columns()[column].*member;
  Shape shape = first.shape();
  shape[0] = 0;
  for (const Batch& batch : batches) {
    const BatchColumn& from = batch.columns()[column];
    shape[0] = sum_of(shape[0], (from.*member).shape()[0], from.column);
  }
  Tensor joined = Tensor::zeros(first.dtype(), shape);
  std::byte* into = joined.nbytes() == 0 ? nullptr : joined.mutable_raw_data();
  for (const Batch& batch : batches) {
    const Tensor& rows = batch.columns()[column].*member;
    if (rows.nbytes() == 0) continue;
    std::memcpy(into, rows.raw_data(), static_cast<std::size_t>(rows.nbytes()));
    into += rows.nbytes();
  }
  return joined;
}

/// Concatenates offsets, which begin at 0 in each batch. Their sums cannot overflow: they count
/// values, whose sum join_rows() has checked, or items, each of which has an offset in memory.
Tensor join_offsets(const std::vector<Batch>& batches, std::size_t column,
                    const Tensor BatchColumn::* member) {
  std::vector<std::int64_t> joined = {0};
  for (const Batch& batch : batches) {
    const std::int64_t before = joined.back();
    const auto offsets = (batch.columns()[column].*member).span<std::int64_t>();
    for (const std::int64_t offset : offsets.subspan(1)) joined.push_back(before + offset);
  }
  return Tensor::from(std::span<const std::int64_t>(joined));
}

bool is_bools(const Tensor& tensor) { return tensor.dtype() == DType::bool_; }

std::vector<BatchColumn> join(const std::vector<Batch>& batches) {
  std::vector<BatchColumn> columns = batches.front().columns();
  for (std::size_t i = 0; i < columns.size(); ++i) {
    BatchColumn& joined = columns[i];
    joined.values = join_rows(batches, i, &BatchColumn::values);
    if (joined.column.has_ends()) {
      joined.offsets = join_offsets(batches, i, &BatchColumn::offsets);
      if (joined.column.ragged && joined.column.is_text()) {
        joined.item_offsets = join_offsets(batches, i, &BatchColumn::item_offsets);
      }
    }
    if (is_bools(joined.valid)) joined.valid = join_rows(batches, i, &BatchColumn::valid);
  }
  return columns;
}

/// Pads the columns that `options` selects: gathers these columns again, from the unpadded columns.
void pad(const BufferPool& pool, std::int64_t num_rows, const BatchOptions& options,
         std::vector<BatchColumn>& columns) {
  const auto is_padded = [&](const Column& column) {
    return column.ragged && !column.is_text() &&
           (options.pad_all || options.pad.contains(column.name()));
  };
  std::vector<std::int64_t> rows(static_cast<std::size_t>(num_rows));
  std::iota(rows.begin(), rows.end(), 0);
  for (BatchColumn& column : columns) {
    if (!is_padded(column.column)) continue;
    StoredColumn stored;
    stored.values = column.values;
    stored.ends = column.offsets.narrow(1, num_rows + 1);
    stored.valid = column.valid;
    stored.row_bytes = stored.stride_bytes = row_bytes_of(column.column);
    DatasetState state;
    state.pool = pool;
    state.schema = Schema({column.column});
    state.parts.emplace_back();
    state.parts[0].columns = {&stored};
    column = gather(state, rows, options).columns()[0];
  }
}

}  // namespace

Batch gather_closed(const DatasetState& state, std::span<const std::int64_t> rows,
                    const BatchOptions& options) {
  BatchOptions unpadded = options;
  unpadded.pad.clear();
  unpadded.pad_all.reset();
  std::vector<Batch> batches;
  for (std::size_t done = 0; batches.empty() || done < rows.size();) {
    PartLocations few(state);
    std::size_t end = done;
    while (end < rows.size() && few.add(rows[end])) ++end;
    if (few.num_rows() == rows.size()) return few.batch(options);
    batches.push_back(few.batch(unpadded));
    done = end;
  }
  std::vector<BatchColumn> columns = join(batches);
  const auto num_rows = static_cast<std::int64_t>(rows.size());
  pad(state.pool, num_rows, options, columns);
  return {num_rows, std::move(columns)};
}

}  // namespace tenfold
