#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/dataset_state.hpp"
#include "dataset/fixed_rows.hpp"
#include "dataset/gather_closed.hpp"
#include "dataset/gather_rows.hpp"
#include "dataset/padding.hpp"
#include "dataset/part_lookup.hpp"
#include "dataset/ring_guard.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

/// Minimum number of bytes for each thread. Waking a thread takes as long as copying a few hundred
/// KiB.
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

/// The elements of a ragged row, or the bytes of a string: [begin, end) in the values of its part.
/// If rows are lists of strings, extents_of() returns the items of each row, and extents_of_items()
/// the bytes of each item.
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

  /// Copies with several threads if there are enough bytes.
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

  /// The offsets of rows with these extents in the batch, int64 [n + 1]. Throws Error(corrupt) if
  /// the last offset exceeds 63 bits, which is possible if the elements have 0 bytes.
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

  /// Returns the number of bytes copied.
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

/// Copies row `from` of one tensor to row `to` of another.
void copy_row(const Tensor& rows, std::size_t from, const Tensor& into, std::size_t to) {
  if (rows.numel() == 0) return;
  const auto row_bytes =
      static_cast<std::size_t>(rows.nbytes()) / static_cast<std::size_t>(rows.shape()[0]);
  std::memcpy(into.mutable_raw_data() + to * row_bytes, rows.raw_data() + from * row_bytes,
              row_bytes);
}

/// Copies rows again that a writer overwrote during their copy, until each row has been copied
/// without being overwritten. Throws like RingWait::wait() if this takes too long. Used for
/// circular buffers, whose columns all have a fixed size.
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
