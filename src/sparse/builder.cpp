#include <algorithm>
#include <array>
#include <cerrno>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <queue>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tenfold/dtype.hpp>
#include <tenfold/error.hpp>
#include <tenfold/sparse_builder.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tree/sparse.hpp"
#include "dataset/spill_file.hpp"
#include "formats/shared/progress.hpp"
#include "sparse/state.hpp"

namespace tenfold {
namespace {

/// Adds the element at `from` to the element at `into`, as torch adds two tensors: integers wrap,
/// bools are or-ed, 16-bit floats are added as float32. The addresses need no alignment.
void add_element(DType dtype, const std::byte* from, std::byte* into);

template <class T>
void add(const std::byte* from, std::byte* into) {
  T a;
  T b;
  std::memcpy(&a, into, sizeof(T));
  std::memcpy(&b, from, sizeof(T));
  a = static_cast<T>(a + b);
  std::memcpy(into, &a, sizeof(T));
}

/// Adds integers as unsigned numbers, which wrap and give the same bits as signed addition.
template <class T>
void add_wrapping(const std::byte* from, std::byte* into) {
  add<std::make_unsigned_t<T>>(from, into);
}

void add_as_float(DType dtype, const std::byte* from, std::byte* into) {
  float a = 0;
  float b = 0;
  cast_elements(dtype, into, DType::float32, reinterpret_cast<std::byte*>(&a), 1);
  cast_elements(dtype, from, DType::float32, reinterpret_cast<std::byte*>(&b), 1);
  a += b;
  cast_elements(DType::float32, reinterpret_cast<const std::byte*>(&a), dtype, into, 1);
}

/// True if add_element() supports the dtype: all but float8, float4 and complex32.
bool can_add(DType dtype) noexcept {
  switch (dtype) {
    case DType::complex32:
    case DType::float8_e4m3fn:
    case DType::float8_e4m3fnuz:
    case DType::float8_e5m2:
    case DType::float8_e5m2fnuz:
    case DType::float8_e8m0fnu:
    case DType::float4_e2m1fn_x2:
      return false;
    default:
      return true;
  }
}

void add_element(DType dtype, const std::byte* from, std::byte* into) {
  switch (dtype) {
    case DType::bool_:
      *into = *into != std::byte{0} || *from != std::byte{0} ? std::byte{1} : std::byte{0};
      return;
    case DType::uint8:
    case DType::int8:
      return add_wrapping<std::int8_t>(from, into);
    case DType::uint16:
    case DType::int16:
      return add_wrapping<std::int16_t>(from, into);
    case DType::uint32:
    case DType::int32:
      return add_wrapping<std::int32_t>(from, into);
    case DType::uint64:
    case DType::int64:
      return add_wrapping<std::int64_t>(from, into);
    case DType::float16:
    case DType::bfloat16:
      return add_as_float(dtype, from, into);
    case DType::float32:
      return add<float>(from, into);
    case DType::float64:
      return add<double>(from, into);
    case DType::complex64:
      return add<std::complex<float>>(from, into);
    case DType::complex128:
      return add<std::complex<double>>(from, into);
    default:
      return;
  }
}

}  // namespace

using namespace detail;
namespace {

constexpr std::size_t kMaxValueBytes = 16;
constexpr std::uint64_t kMinMemoryBytes = 4096;
/// Maximum and minimum size of the buffer from which the merge reads a run. The more runs there
/// are, the smaller the buffers.
constexpr std::uint64_t kMaxRunBytes = std::uint64_t{1} << 20U;
constexpr std::uint64_t kMinRunBytes = std::uint64_t{16} << 10U;
/// Each component tensor of the result stays in memory up to this size. A larger one is written to
/// a file.
constexpr std::size_t kPartBytes = std::size_t{64} << 20U;
constexpr std::uint64_t kPollEntries = std::uint64_t{1} << 16U;

struct Entry {
  std::int64_t major_index;
  std::int64_t minor_index;
  std::array<std::byte, kMaxValueBytes> value;

  bool operator<(const Entry& other) const noexcept {
    return major_index != other.major_index ? major_index < other.major_index
                                            : minor_index < other.minor_index;
  }
  bool same_position(const Entry& other) const noexcept {
    return major_index == other.major_index && minor_index == other.minor_index;
  }
};

/// A sorted run that is read back from the spill file.
class Run {
 public:
  Run(const SpillFile& spill, std::uint64_t begin, std::uint64_t end, std::size_t value_bytes,
      std::size_t buffer_bytes)
      : spill_(&spill),
        at_(begin),
        end_(end),
        value_bytes_(value_bytes),
        buffer_entries_(std::max<std::size_t>(1, buffer_bytes / entry_bytes())) {}

  /// Reads the next entry; false at the end.
  bool next(Entry& entry) {
    if (next_ == buffer_.size()) {
      const auto count = std::min<std::uint64_t>(buffer_entries_ * entry_bytes(), end_ - at_);
      if (count == 0) return false;
      buffer_.resize(static_cast<std::size_t>(count));
      spill_->read(at_, buffer_);
      at_ += count;
      next_ = 0;
    }
    const std::byte* from = buffer_.data() + next_;
    std::memcpy(&entry.major_index, from, sizeof(std::int64_t));
    std::memcpy(&entry.minor_index, from + sizeof(std::int64_t), sizeof(std::int64_t));
    std::memcpy(entry.value.data(), from + 2 * sizeof(std::int64_t), value_bytes_);
    next_ += entry_bytes();
    return true;
  }

 private:
  std::size_t entry_bytes() const noexcept { return 2 * sizeof(std::int64_t) + value_bytes_; }

  const SpillFile* spill_;
  std::uint64_t at_;
  std::uint64_t end_;
  std::size_t value_bytes_;
  std::size_t buffer_entries_;
  std::vector<std::byte> buffer_;
  std::size_t next_ = 0;
};

std::int64_t index_at(const Tensor& indices, std::int64_t i) {
  return indices.dtype() == DType::int32 ? indices.data<std::int32_t>()[i]
                                         : indices.data<std::int64_t>()[i];
}

Error refuse() { return base::invalid_argument().part("sparse matrix"); }

void require_unfinished(bool is_finished) {
  if (!is_finished) return;
  throw refuse().part("builder").expected("entries before finish()").found("some after it");
}

}  // namespace

struct SparseBuilder::State {
  State(std::int64_t rows, std::int64_t columns, DType of_values, const SparseBuilderOptions& with)
      : num_rows(rows),
        num_cols(columns),
        dtype(of_values),
        options(with),
        value_bytes(itemsize(of_values)),
        max_entries(
            static_cast<std::size_t>(std::max(with.memory_bytes, kMinMemoryBytes) / sizeof(Entry))),
        runs(with.temporary_folder, 0) {}

  bool by_column() const noexcept { return options.layout == SparseLayout::csc; }
  std::int64_t major_size() const noexcept { return by_column() ? num_cols : num_rows; }

  void push(std::int64_t major_index, std::int64_t minor_index, const std::byte* value) {
    if (entries.size() == max_entries) spill();
    Entry& entry = entries.emplace_back();
    entry.major_index = major_index;
    entry.minor_index = minor_index;
    std::memcpy(entry.value.data(), value, value_bytes);
    major_size_needed = std::max(major_size_needed, major_index + 1);
    minor_size_needed = std::max(minor_size_needed, minor_index + 1);
    ++num_entries;
  }
  void sort_run();
  void spill();
  void merge(const std::function<void(const Entry&)>& emit);

  std::int64_t num_rows;
  std::int64_t num_cols;
  DType dtype;
  SparseBuilderOptions options;
  std::size_t value_bytes;
  std::size_t max_entries;
  std::vector<Entry> entries;
  SpillFile runs;
  /// The begin and end of each run, as offsets in bytes. Bytes between two runs are from a failed
  /// spill, whose entries stayed in memory and were spilled again.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> run_bounds;
  std::uint64_t num_entries = 0;
  std::int64_t major_size_needed = 0;
  std::int64_t minor_size_needed = 0;
  bool finished = false;
};

void SparseBuilder::State::sort_run() {
  if (!std::is_sorted(entries.begin(), entries.end())) {
    std::stable_sort(entries.begin(), entries.end());
  }
}

void SparseBuilder::State::spill() {
  sort_run();
  const std::uint64_t begin = runs.size_bytes();
  std::vector<std::byte> packed;
  const std::size_t entry_bytes = 2 * sizeof(std::int64_t) + value_bytes;
  const auto write = [&] {
    runs.append(packed);
    packed.clear();
  };
  packed.reserve(static_cast<std::size_t>(kMaxRunBytes) + entry_bytes);
  for (const Entry& entry : entries) {
    const std::size_t at = packed.size();
    packed.resize(at + entry_bytes);
    std::memcpy(packed.data() + at, &entry.major_index, sizeof(std::int64_t));
    std::memcpy(packed.data() + at + sizeof(std::int64_t), &entry.minor_index,
                sizeof(std::int64_t));
    std::memcpy(packed.data() + at + 2 * sizeof(std::int64_t), entry.value.data(), value_bytes);
    if (packed.size() >= kMaxRunBytes) write();
  }
  write();
  run_bounds.emplace_back(begin, runs.size_bytes());
  entries.clear();
}

/// Passes all entries to `emit`, sorted by major and then minor index. Entries with the same
/// coordinate keep their input order.
void SparseBuilder::State::merge(const std::function<void(const Entry&)>& emit) {
  if (run_bounds.empty()) {
    sort_run();
    for (const Entry& entry : entries) emit(entry);
    std::vector<Entry>().swap(entries);
    return;
  }
  if (!entries.empty()) spill();
  std::vector<Entry>().swap(entries);
  const auto buffer_bytes = static_cast<std::size_t>(
      std::clamp(max_entries * sizeof(Entry) / run_bounds.size(), kMinRunBytes, kMaxRunBytes));
  std::vector<Run> open;
  std::vector<Entry> heads(run_bounds.size());
  const auto later = [&heads](std::size_t a, std::size_t b) {
    if (heads[a] < heads[b]) return false;
    return heads[b] < heads[a] || a > b;
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(later)> queue(later);
  for (std::size_t i = 0; i < run_bounds.size(); ++i) {
    open.emplace_back(runs, run_bounds[i].first, run_bounds[i].second, value_bytes, buffer_bytes);
    if (open[i].next(heads[i])) queue.push(i);
  }
  while (!queue.empty()) {
    const std::size_t first = queue.top();
    queue.pop();
    emit(heads[first]);
    if (open[first].next(heads[first])) queue.push(first);
  }
}

namespace {

/// The component tensors of the result, appended entry by entry.
class Parts {
 public:
  Parts(SparseLayout layout, const Path& folder, std::int64_t major_size, std::size_t value_bytes,
        DType index_dtype)
      : layout_(layout),
        major_size_(major_size),
        value_bytes_(value_bytes),
        index_dtype_(index_dtype),
        major_indices_(std::make_shared<SpillFile>(folder, kPartBytes)),
        minor_indices_(std::make_shared<SpillFile>(folder, kPartBytes)),
        values_(std::make_shared<SpillFile>(folder, kPartBytes)) {
    if (layout_ == SparseLayout::coo) return;
    // Even without entries, a csr matrix has num_rows + 1 offsets, and a csc matrix num_cols + 1.
    major_indices_->require_space(static_cast<std::uint64_t>(major_size) + 1,
                                  itemsize(index_dtype));
    put(*major_indices_, 0);
  }

  void add(const Entry& entry) {
    if (layout_ == SparseLayout::coo) {
      put(*major_indices_, entry.major_index);
    } else {
      end_offsets_before(entry.major_index);
    }
    put(*minor_indices_, entry.minor_index);
    values_->append(std::span(entry.value).first(value_bytes_));
    ++count_;
  }

  TensorDict finish(std::int64_t num_rows, std::int64_t num_cols, DType dtype) {
    NodeInfo info;
    info.kind = NodeKind::sparse;
    info.layout = "sparse_" + to_string(layout_);
    info.dense_shape = {num_rows, num_cols};
    info.is_coalesced = layout_ == SparseLayout::coo;
    const auto parts = sparse_parts(info.layout);
    TensorDict node(info);
    const auto set = [&](std::string_view part, const std::shared_ptr<SpillFile>& spill, DType of,
                         Shape shape) {
      node.set(part, TensorDict::Item(leaf_of(spill, of, std::move(shape))));
    };
    if (layout_ == SparseLayout::coo) {
      major_indices_->append(*minor_indices_);
      set("indices", major_indices_, index_dtype_, {2, count_});
      minor_indices_.reset();
    } else {
      end_offsets_before(major_size_);
      set(parts[0], major_indices_, index_dtype_, {major_size_ + 1});
      set(parts[1], minor_indices_, index_dtype_, {count_});
    }
    set("values", values_, dtype, {count_});
    return node;
  }

 private:
  void put(SpillFile& spill, std::int64_t number) const {
    if (index_dtype_ == DType::int32) {
      const auto narrow = static_cast<std::int32_t>(number);
      spill.append(std::as_bytes(std::span(&narrow, 1)));
    } else {
      spill.append(std::as_bytes(std::span(&number, 1)));
    }
  }
  void end_offsets_before(std::int64_t major_index) {
    for (; ended_ < major_index; ++ended_) put(*major_indices_, count_);
  }

  SparseLayout layout_;
  std::int64_t major_size_;
  std::size_t value_bytes_;
  DType index_dtype_;
  /// csr, csc: end offsets of the major axis; coo: the row of each entry.
  std::shared_ptr<SpillFile> major_indices_;
  std::shared_ptr<SpillFile> minor_indices_;
  std::shared_ptr<SpillFile> values_;
  std::int64_t count_ = 0;
  std::int64_t ended_ = 0;
};

}  // namespace

SparseBuilder::SparseBuilder(std::int64_t num_rows, std::int64_t num_cols, DType dtype,
                             const SparseBuilderOptions& options) {
  if (num_rows < 0 || num_cols < 0) {
    throw refuse()
        .part("shape")
        .expected("lengths of 0 or more")
        .found("[", num_rows, ", ", num_cols, "]");
  }
  if (options.index_dtype != DType::int32 && options.index_dtype != DType::int64) {
    throw refuse()
        .part("index dtype")
        .expected("int32 or int64")
        .found(to_string(options.index_dtype));
  }
  state_ = std::make_unique<State>(num_rows, num_cols, dtype, options);
}

SparseBuilder::~SparseBuilder() = default;

void SparseBuilder::add(const Tensor& rows, const Tensor& columns, const Tensor& values) {
  State& state = *state_;
  require_unfinished(state.finished);
  for (const Tensor* indices : {&rows, &columns}) {
    if (indices->dtype() != DType::int32 && indices->dtype() != DType::int64) {
      throw refuse()
          .part("coordinates")
          .expected("int32 or int64")
          .found(to_string(indices->dtype()));
    }
  }
  if (values.dtype() != state.dtype) {
    throw refuse().part("values").expected(to_string(state.dtype)).found(to_string(values.dtype()));
  }
  if (rows.ndim() != 1 || columns.shape() != rows.shape() || values.shape() != rows.shape()) {
    throw refuse()
        .part("coordinates")
        .expected("one-dimensional rows, columns and values of equal length")
        .found(base::list_text(rows.shape()), ", ", base::list_text(columns.shape()), " and ",
               base::list_text(values.shape()));
  }
  const Tensor row_numbers = rows.contiguous();
  const Tensor column_numbers = columns.contiguous();
  const Tensor numbers = values.contiguous();
  for (std::int64_t i = 0; i < rows.numel(); ++i) {
    const std::int64_t row = index_at(row_numbers, i);
    const std::int64_t column = index_at(column_numbers, i);
    if (row >= 0 && row < state.num_rows && column >= 0 && column < state.num_cols) continue;
    throw refuse()
        .part("coordinate (", row, ", ", column, ")")
        .expected("one in the shape [", state.num_rows, ", ", state.num_cols, "]");
  }
  const std::byte* from = numbers.raw_data();
  for (std::int64_t i = 0; i < rows.numel(); ++i, from += state.value_bytes) {
    const std::int64_t row = index_at(row_numbers, i);
    const std::int64_t column = index_at(column_numbers, i);
    state.push(state.by_column() ? column : row, state.by_column() ? row : column, from);
  }
}

void SparseBuilder::add(const SparseMatrix& matrix, Monitor* monitor) {
  State& state = *state_;
  require_unfinished(state.finished);
  const auto source = state_of(matrix);  // read once, because another thread may append rows
  const DType dtype = source->values.dtype();
  if (source->num_rows != state.num_rows || source->num_cols != state.num_cols ||
      dtype != state.dtype) {
    throw refuse()
        .expected("shape [", state.num_rows, ", ", state.num_cols, "] and dtype ",
                  to_string(state.dtype))
        .found("shape [", source->num_rows, ", ", source->num_cols, "] and dtype ",
               to_string(dtype));
  }
  const std::byte* values = source->values.raw_data();
  const bool swap = state.by_column() != (source->layout == SparseLayout::csc);
  const std::uint64_t entry_bytes = state.value_bytes + source->minor_indices.itemsize();
  formats::Progress progress(monitor, static_cast<std::uint64_t>(source->nnz) * entry_bytes,
                             "read");
  std::uint64_t seen = 0;
  for_each_entry(*source,
                 [&](std::int64_t major_index, std::int64_t minor_index, std::int64_t number) {
                   if (++seen % kPollEntries == 0) {
                     progress.add(kPollEntries * entry_bytes);
                     progress.poll();
                   }
                   state.push(swap ? minor_index : major_index, swap ? major_index : minor_index,
                              values + static_cast<std::size_t>(number) * state.value_bytes);
                 });
  progress.finish();
}

std::int64_t SparseBuilder::rows_needed() const noexcept {
  return state_->by_column() ? state_->minor_size_needed : state_->major_size_needed;
}
std::int64_t SparseBuilder::cols_needed() const noexcept {
  return state_->by_column() ? state_->major_size_needed : state_->minor_size_needed;
}

void SparseBuilder::resize(std::int64_t num_rows, std::int64_t num_cols) {
  if (num_rows < rows_needed() || num_cols < cols_needed()) {
    throw refuse()
        .part("shape")
        .expected("at least [", rows_needed(), ", ", cols_needed(), "], to contain all coordinates")
        .found("[", num_rows, ", ", num_cols, "]");
  }
  state_->num_rows = num_rows;
  state_->num_cols = num_cols;
}

SparseMatrix SparseBuilder::finish(Monitor* monitor) {
  State& state = *state_;
  if (state.finished) {
    throw refuse().part("builder").expected("one call of finish()").found("a second one");
  }
  state.finished = true;
  DType index_dtype = state.options.index_dtype;
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());
  const auto longest = static_cast<std::uint64_t>(std::max(state.num_rows, state.num_cols));
  if (std::max(longest, state.num_entries) > kMost) index_dtype = DType::int64;
  Parts parts(state.options.layout, state.options.temporary_folder, state.major_size(),
              state.value_bytes, index_dtype);
  formats::Progress progress(monitor, state.num_entries * state.value_bytes, "sort");
  Entry last{};
  bool has_last = false;
  std::uint64_t seen = 0;
  state.merge([&](const Entry& entry) {
    if (++seen % kPollEntries == 0) {
      progress.add(kPollEntries * state.value_bytes);
      progress.poll();
    }
    if (has_last && last.same_position(entry)) {
      if (!state.options.sum_duplicates) {
        const std::int64_t row = state.by_column() ? entry.minor_index : entry.major_index;
        const std::int64_t column = state.by_column() ? entry.major_index : entry.minor_index;
        throw refuse()
            .part("coordinate (", row, ", ", column, ")")
            .expected("one entry")
            .found("two")
            .remedy("sum the duplicates, or remove one of them");
      }
      if (!can_add(state.dtype)) {
        throw base::unsupported()
            .part("sparse matrix: entries of the same coordinate")
            .expected("a dtype that can be added")
            .found(to_string(state.dtype));
      }
      return add_element(state.dtype, entry.value.data(), last.value.data());
    }
    if (has_last) parts.add(last);
    last = entry;
    has_last = true;
  });
  if (has_last) parts.add(last);
  progress.finish();
  return SparseMatrix(parts.finish(state.num_rows, state.num_cols, state.dtype));
}

}  // namespace tenfold
