#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/dataset_state.hpp"
#include "dataset/fixed_rows.hpp"
#include "dataset/gather_rows.hpp"
#include "dataset/padding.hpp"
#include "dataset/part_lookup.hpp"
#include "dataset/ring_guard.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

/// Minimum number of bytes for each thread. Waking a thread takes as long as copying a few
/// hundred KiB.
constexpr std::uint64_t kMinBytesAThread = 256 << 10U;

/// The rows of a batch, each as a part and a row index in the part.
class RowLocations {
 public:
  RowLocations(const std::vector<DatasetPart>& parts, std::span<const std::int64_t> rows)
      : rows_(rows) {
    if (parts.size() <= 1) return;
    std::vector<std::int64_t> begins;
    begins.reserve(parts.size());
    for (const DatasetPart& part : parts) begins.push_back(part.first_row);
    parts_ = part_of_each(begins, rows);
    local_.reserve(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) local_.push_back(rows[i] - begins[parts_[i]]);
    rows_ = local_;
  }

  std::size_t size() const noexcept { return rows_.size(); }
  std::size_t part(std::size_t i) const noexcept { return parts_.empty() ? 0 : parts_[i]; }
  std::int64_t row(std::size_t i) const noexcept { return rows_[i]; }

  /// Copies the rows at positions [begin, end) of the batch to `into`.
  void copy(const FixedRows& into, std::size_t begin, std::size_t end) const {
    const auto parts = parts_.empty()
                           ? std::span<const std::uint32_t>()
                           : std::span<const std::uint32_t>(parts_).subspan(begin, end - begin);
    into.copy(parts, rows_.subspan(begin, end - begin), begin);
  }

 private:
  std::span<const std::int64_t> rows_;
  std::vector<std::uint32_t> parts_;  ///< empty if there is only one part
  std::vector<std::int64_t> local_;
};

/// The range of the elements of a ragged row, or of the bytes of a string, in the values of its
/// part. For lists of strings, extents_of() returns the range of items of each row, and
/// extents_of_items() the range of bytes of each item.
struct Extent {
  std::size_t part;
  std::int64_t begin;
  std::int64_t end;
};

class Gatherer {
 public:
  Gatherer(const DatasetState& state, std::span<const std::int64_t> rows,
           const BatchOptions& options)
      : state_(state), options_(options), places_(state.parts, rows) {}

  Batch run() {
    std::vector<BatchColumn> columns = batch_columns_of(state_);
    copy_fixed(columns);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].column.has_ends()) gather_unequal(i, columns[i]);
    }
    return {num_rows(), std::move(columns)};
  }

 private:
  std::int64_t num_rows() const { return static_cast<std::int64_t>(places_.size()); }

  void copy_fixed(std::vector<BatchColumn>& columns) const {
    const FixedRows into(state_, places_.size(), columns);
    const int threads = os::num_threads_for(options_.num_threads);
    const auto pieces = static_cast<std::size_t>(std::clamp<std::uint64_t>(
        into.num_bytes() / kMinBytesAThread, 1, static_cast<std::uint64_t>(threads)));
    os::parallel_for(pieces, threads, [&](std::size_t piece) {
      places_.copy(into, places_.size() * piece / pieces, places_.size() * (piece + 1) / pieces);
    });
  }

  [[noreturn]] void fail(const Column& column, const std::string& part, std::int64_t begin,
                         std::int64_t end, std::int64_t limit, std::size_t table) const {
    const std::string& where = state_.parts[table].table->where();
    throw base::corrupt(where.empty() ? base::Where("", "data set") : where)
        .part("column ", base::quote(column.name()), ": ", part)
        .problem("the data set is damaged")
        .expected("nondecreasing end offsets from 0 to ", limit)
        .found(begin, " before ", end);
  }

  /// The range of row (or item) `index` according to the end offsets `ends`. Throws Error(corrupt)
  /// unless the range is within [0, limit].
  std::pair<std::int64_t, std::int64_t> range_at(const Column& column, const Tensor& ends,
                                                 std::int64_t index, std::int64_t limit,
                                                 std::size_t table) const {
    const auto* values = ends.data<std::int64_t>();
    const std::int64_t begin = index == 0 ? 0 : values[index - 1];
    const std::int64_t end = values[index];
    if (begin < 0 || end < begin || end > limit) fail(column, "ends", begin, end, limit, table);
    return {begin, end};
  }

  std::vector<Extent> extents_of(std::size_t index, const Column& column) const {
    std::vector<Extent> extents;
    extents.reserve(places_.size());
    const bool in_items = column.ragged && column.is_text();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const std::size_t part = places_.part(i);
      const StoredColumn& stored = *state_.parts[part].columns[index];
      const Tensor& counted = in_items ? stored.item_ends : stored.values;
      const auto [begin, end] =
          range_at(column, stored.ends, places_.row(i), counted.shape()[0], part);
      extents.push_back({part, begin, end});
    }
    return extents;
  }

  Tensor take(DType dtype, Shape shape) const {
    const Buffer block = state_.pool.take(static_cast<std::size_t>(nbytes_of(dtype, shape)));
    return tensor_in(dtype, std::move(shape), block, 0);
  }

  /// Returns the offsets of a batch whose rows have these extents, int64 [n + 1]. Throws
  /// Error(corrupt) if the last offset exceeds 63 bits, which is possible for elements of 0 bytes.
  Tensor offsets_of(const Column& column, const std::vector<Extent>& extents) const {
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    Tensor offsets = take(DType::int64, {static_cast<std::int64_t>(extents.size()) + 1});
    auto* into = offsets.mutable_data<std::int64_t>();
    *into = 0;
    for (const Extent& extent : extents) {
      const std::int64_t length = extent.end - extent.begin;
      if (length > kMax - *into) fail(column, "ends", extent.begin, extent.end, kMax, extent.part);
      const std::int64_t next = *into + length;
      *++into = next;
    }
    return offsets;
  }

  static std::int64_t last_of(const Tensor& offsets) { return offsets.span<std::int64_t>().back(); }

  const PadValue* pad_of(const Column& column) const {
    if (column.is_text()) return nullptr;
    const auto found = options_.pad.find(column.name());
    if (found != options_.pad.end()) return &found->second;
    return options_.pad_all ? &*options_.pad_all : nullptr;
  }

  void gather_unequal(std::size_t index, BatchColumn& into) const {
    const Column& column = into.column;
    std::vector<Extent> extents = extents_of(index, column);
    if (const PadValue* pad = pad_of(column)) {
      gather_padded(index, extents, *pad, into);
      return;
    }
    into.offsets = offsets_of(column, extents);
    const bool in_items = column.ragged && column.is_text();
    if (in_items) extents = extents_of_items(index, extents, into);
    const Tensor& offsets = in_items ? into.item_offsets : into.offsets;
    into.values = take(column.dtype, batch_shape_of(last_of(offsets), column));
    const std::uint64_t row_bytes = row_bytes_of(column);
    std::byte* out = into.values.mutable_raw_data();
    for (std::size_t i = 0; i < extents.size(); ++i) {
      out += copy_extent(index, extents, i, row_bytes, out);
    }
  }

  /// Copies the bytes of extents[i] to `out`. Returns the number of bytes copied.
  std::size_t copy_extent(std::size_t index, const std::vector<Extent>& extents, std::size_t i,
                          std::uint64_t row_bytes, std::byte* out) const {
    constexpr std::size_t kAhead = 3;
    const Extent& extent = extents[i];
    const auto size =
        static_cast<std::size_t>(static_cast<std::uint64_t>(extent.end - extent.begin) * row_bytes);
    if (size == 0) return 0;
    const Extent& coming = extents[std::min(i + kAhead, extents.size() - 1)];
    copy_with_prefetch(source(index, coming), source(index, extent), size, out);
    return size;
  }

  /// Converts ranges of items to ranges of bytes, and sets the item offsets of the batch.
  std::vector<Extent> extents_of_items(std::size_t index, const std::vector<Extent>& rows,
                                       BatchColumn& into) const {
    std::vector<Extent> items;
    items.reserve(static_cast<std::size_t>(last_of(into.offsets)));
    for (const Extent& row : rows) {
      const StoredColumn& stored = *state_.parts[row.part].columns[index];
      for (std::int64_t item = row.begin; item < row.end; ++item) {
        const auto [begin, end] =
            range_at(into.column, stored.item_ends, item, stored.values.shape()[0], row.part);
        items.push_back({row.part, begin, end});
      }
    }
    into.item_offsets = offsets_of(into.column, items);
    return items;
  }

  const std::byte* source(std::size_t index, const Extent& extent) const {
    const StoredColumn& stored = *state_.parts[extent.part].columns[index];
    return stored.values.raw_data() + static_cast<std::uint64_t>(extent.begin) * stored.row_bytes;
  }

  void gather_padded(std::size_t index, const std::vector<Extent>& extents, const PadValue& pad,
                     BatchColumn& into) const {
    const Column& column = into.column;
    std::int64_t longest = 0;
    into.lengths = take(DType::int64, {num_rows()});
    auto* lengths = num_rows() == 0 ? nullptr : into.lengths.mutable_data<std::int64_t>();
    for (const Extent& extent : extents) {
      *lengths = extent.end - extent.begin;
      longest = std::max(longest, *lengths++);
    }
    Shape shape = column.shape;
    shape.insert(shape.begin(), {num_rows(), longest});
    into.values = take(column.dtype, std::move(shape));
    into.is_padded = true;
    const std::uint64_t row_bytes = row_bytes_of(column);
    const auto padded_bytes = static_cast<std::uint64_t>(longest) * row_bytes;
    const Padding padding(column, pad);
    std::byte* out = into.values.mutable_raw_data();
    for (std::size_t i = 0; i < extents.size(); ++i) {
      const std::size_t size = copy_extent(index, extents, i, row_bytes, out);
      padding.fill(std::span(out + size, static_cast<std::size_t>(padded_bytes) - size));
      out += padded_bytes;
    }
  }

  const DatasetState& state_;
  const BatchOptions& options_;
  RowLocations places_;
};

void copy_row(const Tensor& rows, std::size_t from, const Tensor& into, std::size_t to) {
  if (rows.numel() == 0) return;
  const auto row_bytes =
      static_cast<std::size_t>(rows.nbytes()) / static_cast<std::size_t>(rows.shape()[0]);
  std::memcpy(into.mutable_raw_data() + to * row_bytes, rows.raw_data() + from * row_bytes,
              row_bytes);
}

/// Repeats the copy of rows that a writer overwrote while they were copied, until no row is
/// overwritten during its copy. Throws the error of RingWait::wait() if this takes too long. All
/// columns have rows of fixed size, because only such columns can be in a circular buffer.
void copy_torn_again(const DatasetState& state, std::span<const std::int64_t> rows,
                     const RingWatch& first, const BatchOptions& options, Batch& batch) {
  RingWait writing(first.where());
  for (std::vector<std::size_t> torn = first.torn(); !torn.empty();) {
    std::vector<std::int64_t> again;
    again.reserve(torn.size());
    for (const std::size_t place : torn) again.push_back(rows[place]);
    const RingWatch watch(state, again);
    const Batch copied = Gatherer(state, again, options).run();
    const std::vector<std::size_t> still = watch.torn();
    for (std::size_t column = 0; column < batch.columns().size(); ++column) {
      const BatchColumn& from = copied.columns()[column];
      const BatchColumn& into = batch.columns()[column];
      for (std::size_t i = 0; i < torn.size(); ++i) {
        copy_row(from.values, i, into.values, torn[i]);
        if (from.valid.dtype() == DType::bool_) copy_row(from.valid, i, into.valid, torn[i]);
      }
    }
    std::vector<std::size_t> left;
    left.reserve(still.size());
    for (const std::size_t i : still) left.push_back(torn[i]);
    torn = std::move(left);
    if (!torn.empty()) writing.wait();
  }
}

/// The index of the part that contains a row: the last part that begins at or before the row.
std::size_t part_of(const std::vector<DatasetPart>& parts, std::int64_t row) {
  const auto after = std::ranges::upper_bound(parts, row, {}, &DatasetPart::first_row);
  return static_cast<std::size_t>(after - parts.begin()) - 1;
}

/// Collects rows of at most kMaxOpen parts, and opens these parts.
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
  std::vector<std::int64_t> places_;  ///< for each part of the state, its index in few_ or kNone
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
/// values, whose total number join_rows() has checked, or items, each of which has an offset in
/// memory.
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

/// Pads the columns that `options` selects: calls gather() for all rows of each unpadded column.
void pad(const BufferPool& pool, std::int64_t num_rows, const BatchOptions& options,
         std::vector<BatchColumn>& columns) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(num_rows));
  std::iota(rows.begin(), rows.end(), 0);
  for (BatchColumn& column : columns) {
    if (!is_padded(column.column, options)) continue;
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

/// Implements gather() for a data set whose parts are not all open. Opens the parts that contain
/// the rows, at most ClosedTables::kMaxOpen parts at a time.
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

}  // namespace

Batch gather(const DatasetState& state, std::span<const std::int64_t> rows,
             const BatchOptions& options) {
  if (!state.all_open) return gather_closed(state, rows, options);
  const RingWatch watch(state, rows);
  Batch batch = Gatherer(state, rows, options).run();
  if (watch.is_needed()) copy_torn_again(state, rows, watch, options, batch);
  return batch;
}

}  // namespace tenfold
