// Gathers along the major axis: rows of csr and coo, columns of csc.

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/prefetch.hpp"
#include "base/zero_fill.hpp"
#include "dataset/gather_rows.hpp"
#include "os/memory/advice.hpp"
#include "os/thread/thread_pool.hpp"
#include "sparse/state.hpp"

namespace tenfold {
namespace {

constexpr std::uint64_t kAlignment = 64;
/// Minimum number of bytes for each of several threads: waking a thread takes as long as copying a
/// few hundred KiB.
constexpr std::uint64_t kMinBytesAThread = std::uint64_t{1} << 20U;
constexpr std::uint64_t kMinDenseBytesAThread = std::uint64_t{4} << 20U;
/// If the dense rows of a thread have at least this total size, they are zeroed with non-temporal
/// stores, because the caches would evict the zeros before entries are written over them.
constexpr std::uint64_t kMinPastCacheBytes = std::uint64_t{4} << 20U;
/// The entries of a row (csc: column) are prefetched kPrefetchDistance rows ahead, its offsets
/// kOffsetPrefetchDistance rows ahead.
constexpr std::size_t kPrefetchDistance = 8;
constexpr std::size_t kOffsetPrefetchDistance = 32;
/// The pages of a matrix with fewer bytes of values are not prefetched, because page faults read
/// them in less time.
constexpr std::uint64_t kMinPrefetchBytes = std::uint64_t{1} << 20U;

/// Calls use(T{}) with the integer type T of an index dtype: int32 or int64.
template <class Use>
auto with_index_type(DType dtype, const Use& use) {
  if (dtype == DType::int32) return use(std::int32_t{});
  return use(std::int64_t{});
}

Error fail(const SparseState& state, std::int64_t major_index) {
  return base::corrupt(state.where).part(state.major_name(), " ", major_index);
}

template <class Index>
std::vector<EntryRange> ranges_in_offsets(const SparseState& state,
                                          std::span<const std::int64_t> major_indices) {
  const Index* ends = state.ends.data<Index>();
  std::vector<EntryRange> ranges(major_indices.size());
  for (std::size_t i = 0; i < major_indices.size(); ++i) {
    const std::int64_t coming =
        major_indices[std::min(i + kOffsetPrefetchDistance, major_indices.size() - 1)];
    base::prefetch<base::kL1>(ends + coming);
    const std::int64_t begin = ends[major_indices[i]];
    const std::int64_t end = ends[major_indices[i] + 1];
    const bool is_late = major_indices[i] == 0 && begin > 0;
    if (begin < 0 || is_late || begin > end || end > state.nnz) {
      throw fail(state, major_indices[i])
          .part("entries")
          .expected(is_late ? "a range from 0 within [0, " : "a range within [0, ", state.nnz, ")")
          .found("[", begin, ", ", end, ")");
    }
    ranges[i] = {begin, end};
  }
  return ranges;
}

template <class Index>
std::vector<EntryRange> ranges_in_coordinates(const SparseState& state,
                                              std::span<const std::int64_t> major_indices) {
  const Index* rows = state.major_indices.data<Index>();
  const Index* end = rows + state.nnz;
  std::vector<EntryRange> ranges(major_indices.size());
  for (std::size_t i = 0; i < major_indices.size(); ++i) {
    const auto below = [](Index row, std::int64_t major_index) { return row < major_index; };
    const auto above = [](std::int64_t major_index, Index row) { return major_index < row; };
    const Index* first = std::lower_bound(rows, end, major_indices[i], below);
    const Index* last = std::upper_bound(first, end, major_indices[i], above);
    ranges[i] = {first - rows, last - rows};
    // Binary search assumes sorted rows. In an unsorted file, the range may contain other rows.
    const auto is_other = [&](Index row) { return row != major_indices[i]; };
    if (const Index* other = std::find_if(first, last, is_other); other != last) {
      throw fail(state, major_indices[i])
          .part("entries")
          .expected("row indices in ascending order")
          .found("row ", static_cast<std::int64_t>(*other));
    }
  }
  return ranges;
}

/// The number of entries in `ranges`, or 2^64 - 1 if that number is larger.
std::uint64_t total_of(const std::vector<EntryRange>& ranges) {
  std::uint64_t total = 0;
  for (const EntryRange& range : ranges) {
    total = base::checked_add(total, static_cast<std::uint64_t>(range.end - range.begin))
                .value_or(std::numeric_limits<std::uint64_t>::max());
  }
  return total;
}

/// One allocation for the elements of several tensors.
class Block {
 public:
  std::size_t reserve(std::uint64_t size_bytes) {
    offsets_.push_back(total_);
    total_ = base::align_up(total_ + size_bytes, kAlignment);
    return offsets_.size() - 1;
  }
  void take(const BufferPool& pool) { buffer_ = pool.take(static_cast<std::size_t>(total_)); }
  Tensor tensor(std::size_t part, DType dtype, Shape shape) const {
    const std::uint64_t size_bytes = nbytes_of(dtype, shape);
    Buffer bytes = size_bytes == 0 ? Buffer()
                                   : buffer_.slice(static_cast<std::size_t>(offsets_[part]),
                                                   static_cast<std::size_t>(size_bytes));
    return {dtype, std::move(shape), std::move(bytes)};
  }

 private:
  std::vector<std::uint64_t> offsets_;
  std::uint64_t total_ = 0;
  Buffer buffer_;
};

/// The position of the first minor index that is out of range; `count` if there is none.
template <class Index>
std::size_t first_outside(const Index* minor_indices, std::size_t count, std::int64_t length) {
  using Unsigned = std::make_unsigned_t<Index>;
  // As unsigned numbers, negative indices are large. So the maximum shows both kinds of invalid
  // indices, and the compiler vectorizes the loop.
  Unsigned greatest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    greatest = std::max(greatest, static_cast<Unsigned>(minor_indices[i]));
  }
  const bool has_negative = static_cast<Index>(greatest) < 0;
  if (count == 0 || (!has_negative && static_cast<std::int64_t>(greatest) < length)) return count;
  const auto is_outside = [length](Index minor_index) {
    return minor_index < 0 || minor_index >= length;
  };
  return static_cast<std::size_t>(std::find_if(minor_indices, minor_indices + count, is_outside) -
                                  minor_indices);
}

/// Splits [0, count), whose data takes `size_bytes`, into parts of at least `min_bytes` on average,
/// and calls work(begin, end) for each part, on several threads. If `size_bytes` is too small for
/// two parts, calls work(0, count).
template <class Work>
void in_parts(std::size_t count, std::uint64_t size_bytes, std::uint64_t min_bytes,
              const Work& work) {
  const std::uint64_t worth = std::max<std::uint64_t>(1, size_bytes / min_bytes);
  const auto threads = static_cast<std::uint64_t>(worth > 1 ? os::num_threads_for(0) : 1);
  const auto parts = static_cast<std::size_t>(std::min({worth, threads, std::uint64_t{count}}));
  if (parts <= 1) return work(0, count);
  os::parallel_for(parts, static_cast<int>(parts), [&](std::size_t part) {
    work(count * part / parts, count * (part + 1) / parts);
  });
}

/// Copies the elements of ranges [first, last) to consecutive positions from `out` on.
void copy_entries(const Tensor& elements, const std::vector<EntryRange>& ranges, std::size_t first,
                  std::size_t last, std::byte* out) {
  const auto size = static_cast<std::uint64_t>(elements.itemsize());
  const std::byte* from = elements.raw_data();
  for (std::size_t i = first; i < last; ++i) {
    const EntryRange& range = ranges[i];
    const EntryRange& coming = ranges[std::min(i + kPrefetchDistance, last - 1)];
    const auto bytes = static_cast<std::size_t>(range.end - range.begin) * size;
    if (bytes == 0) continue;
    copy_with_prefetch(from + static_cast<std::uint64_t>(coming.begin) * size,
                       from + static_cast<std::uint64_t>(range.begin) * size, bytes, out);
    out += bytes;
  }
}

template <class Index>
void require_minor_indices(const SparseState& state, std::span<const std::int64_t> major_indices,
                           const std::vector<EntryRange>& ranges, const Index* minor_indices,
                           std::size_t count) {
  const std::size_t bad = first_outside(minor_indices, count, state.minor_size());
  if (bad == count) return;
  std::size_t major_index = 0;
  auto entries = static_cast<std::int64_t>(bad);
  while (entries >= ranges[major_index].end - ranges[major_index].begin) {
    entries -= ranges[major_index].end - ranges[major_index].begin;
    ++major_index;
  }
  throw_bad_minor_index(state, major_indices[major_index], minor_indices[bad]);
}

template <class Index>
CompressedRows gather_typed(const SparseState& state, std::span<const std::int64_t> major_indices,
                            bool with_numbers) {
  const DType dtype = state.minor_indices.dtype();
  const std::vector<EntryRange> ranges = entry_ranges(state, major_indices);
  const auto total = static_cast<std::size_t>(total_of(ranges));
  if (total > static_cast<std::uint64_t>(std::numeric_limits<Index>::max())) {
    throw base::invalid_argument(state.where)
        .part("selected entries")
        .expected("at most ", std::numeric_limits<Index>::max(), ", because indices are ",
                  to_string(dtype))
        .found(total)
        .remedy("select fewer rows or columns");
  }
  prefetch_ranges(state, ranges);
  const std::uint64_t value_bytes = state.values.itemsize();
  Block block;
  const std::size_t at_ends = block.reserve((major_indices.size() + 1) * sizeof(Index));
  const std::size_t at_indices = block.reserve(total * sizeof(Index));
  const std::size_t at_values = block.reserve(total * value_bytes);
  const std::size_t at_numbers = block.reserve(with_numbers ? total * 2 * sizeof(std::int64_t) : 0);
  block.take(state.pool);

  CompressedRows made;
  const auto count = static_cast<std::int64_t>(total);
  made.ends = block.tensor(at_ends, dtype, {static_cast<std::int64_t>(major_indices.size()) + 1});
  made.minor_indices = block.tensor(at_indices, dtype, {count});
  made.values = block.tensor(at_values, state.values.dtype(), {count});
  Index* ends = made.ends.mutable_data<Index>();
  ends[0] = 0;
  for (std::size_t i = 0; i < major_indices.size(); ++i) {
    ends[i + 1] = static_cast<Index>(ends[i] + (ranges[i].end - ranges[i].begin));
  }
  in_parts(major_indices.size(), total * (sizeof(Index) + value_bytes), kMinBytesAThread,
           [&](std::size_t first, std::size_t last) {
             const auto before = static_cast<std::uint64_t>(ends[first]);
             copy_entries(state.minor_indices, ranges, first, last,
                          made.minor_indices.mutable_raw_data() + before * sizeof(Index));
             copy_entries(state.values, ranges, first, last,
                          made.values.mutable_raw_data() + before * value_bytes);
           });
  require_minor_indices(state, major_indices, ranges, made.minor_indices.data<Index>(), total);
  if (!with_numbers) return made;
  made.numbers = block.tensor(at_numbers, DType::int64, {2, count});
  std::int64_t* numbers = made.numbers.mutable_data<std::int64_t>();
  for (std::size_t i = 0; i < major_indices.size(); ++i) {
    std::fill(numbers + ends[i], numbers + ends[i + 1], static_cast<std::int64_t>(i));
  }
  const Index* minor_indices = made.minor_indices.data<Index>();
  std::copy(minor_indices, minor_indices + total, numbers + total);
  made.minor_indices = Tensor();
  return made;
}

template <class Index>
PaddedRows pad_typed(const SparseState& state, std::span<const std::int64_t> major_indices) {
  const std::vector<EntryRange> ranges = entry_ranges(state, major_indices);
  prefetch_ranges(state, ranges);
  std::int64_t longest = 0;
  for (const EntryRange& range : ranges) longest = std::max(longest, range.end - range.begin);
  const Shape shape = {static_cast<std::int64_t>(major_indices.size()), longest};
  const std::size_t value_bytes = state.values.itemsize();
  Block block;
  const std::size_t at_indices = block.reserve(nbytes_of(state.minor_indices.dtype(), shape));
  const std::size_t at_values = block.reserve(nbytes_of(state.values.dtype(), shape));
  const std::size_t at_lengths = block.reserve(major_indices.size() * sizeof(std::int64_t));
  block.take(state.pool);
  PaddedRows made;
  made.minor_indices = block.tensor(at_indices, state.minor_indices.dtype(), shape);
  made.values = block.tensor(at_values, state.values.dtype(), shape);
  made.lengths = block.tensor(at_lengths, DType::int64, {shape[0]});
  const auto width = static_cast<std::size_t>(longest);
  const auto pad = [&](const Tensor& from, const Tensor& into, std::size_t i) {
    const std::size_t size = from.itemsize();
    const auto count = static_cast<std::size_t>(ranges[i].end - ranges[i].begin) * size;
    const EntryRange& coming = ranges[std::min(i + kPrefetchDistance, ranges.size() - 1)];
    std::byte* out = into.mutable_raw_data() + i * width * size;
    copy_with_prefetch(from.raw_data() + static_cast<std::size_t>(coming.begin) * size,
                       from.raw_data() + static_cast<std::size_t>(ranges[i].begin) * size, count,
                       out);
    std::memset(out + count, 0, width * size - count);
  };
  in_parts(major_indices.size(), major_indices.size() * width * (sizeof(Index) + value_bytes),
           kMinBytesAThread, [&](std::size_t first, std::size_t last) {
             for (std::size_t i = first; i < last && width > 0; ++i) {
               pad(state.minor_indices, made.minor_indices, i);
               pad(state.values, made.values, i);
             }
           });
  for (std::size_t i = 0; i < major_indices.size(); ++i) {
    const auto count = static_cast<std::size_t>(ranges[i].end - ranges[i].begin);
    made.lengths.mutable_data<std::int64_t>()[i] = static_cast<std::int64_t>(count);
    if (count == 0) continue;
    const Index* minor_indices = made.minor_indices.data<Index>() + i * width;
    const std::size_t bad = first_outside(minor_indices, count, state.minor_size());
    if (bad < count) throw_bad_minor_index(state, major_indices[i], minor_indices[bad]);
  }
  return made;
}

/// Writes the elements of one row (csc: column) to `out`. The element with minor index k goes to
/// position k * stride.
template <class Index, class Element>
void scatter_entries(const SparseState& state, std::int64_t major_index, const EntryRange& range,
                     Element* out, std::int64_t stride) {
  const Index* minor_indices = state.minor_indices.data<Index>();
  const auto* values = reinterpret_cast<const Element*>(state.values.raw_data());
  const std::int64_t length = state.minor_size();
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const std::int64_t minor_index = minor_indices[i];
    if (minor_index < 0 || minor_index >= length) {
      throw_bad_minor_index(state, major_index, minor_index);
    }
    std::memcpy(out + minor_index * stride, values + i, sizeof(Element));
  }
}

struct Wide {
  std::uint64_t halves[2];
};

/// Calls use(Element{}) with a type that has the same size as the values.
template <class Use>
void with_element_type(std::size_t size_bytes, const Use& use) {
  switch (size_bytes) {
    case 1:
      return use(std::uint8_t{});
    case 2:
      return use(std::uint16_t{});
    case 4:
      return use(std::uint32_t{});
    case 8:
      return use(std::uint64_t{});
    default:
      return use(Wide{});
  }
}

template <class Index, class Element>
void scatter(const SparseState& state, std::span<const std::int64_t> major_indices,
             const std::vector<EntryRange>& ranges, bool as_columns, const Tensor& dense) {
  auto* out = reinterpret_cast<Element*>(dense.mutable_raw_data());
  const std::int64_t length = state.minor_size();
  const auto count = static_cast<std::int64_t>(major_indices.size());
  if (as_columns) {
    base::zero_past_cache({dense.mutable_raw_data(), static_cast<std::size_t>(dense.nbytes())});
    for (std::size_t i = 0; i < major_indices.size(); ++i) {
      scatter_entries<Index>(state, major_indices[i], ranges[i], out + i, count);
    }
    return;
  }
  in_parts(major_indices.size(), dense.nbytes(), kMinDenseBytesAThread,
           [&](std::size_t first, std::size_t last) {
             const std::size_t row_bytes = static_cast<std::size_t>(length) * sizeof(Element);
             std::byte* begin = dense.mutable_raw_data() + first * row_bytes;
             const bool is_large = (last - first) * row_bytes >= kMinPastCacheBytes;
             if (is_large) base::zero_past_cache({begin, (last - first) * row_bytes});
             for (std::size_t i = first; i < last; ++i) {
               Element* row = out + static_cast<std::int64_t>(i) * length;
               if (!is_large) std::memset(row, 0, row_bytes);
               scatter_entries<Index>(state, major_indices[i], ranges[i], row, 1);
             }
           });
}

}  // namespace

std::vector<EntryRange> entry_ranges(const SparseState& state,
                                     std::span<const std::int64_t> major_indices) {
  if (state.layout == SparseLayout::coo) require_sorted(state);
  if (major_indices.empty()) return {};
  if (state.layout != SparseLayout::coo) {
    return with_index_type(state.ends.dtype(), [&](auto index) {
      return ranges_in_offsets<decltype(index)>(state, major_indices);
    });
  }
  return with_index_type(state.major_indices.dtype(), [&](auto index) {
    return ranges_in_coordinates<decltype(index)>(state, major_indices);
  });
}

void prefetch_ranges(const SparseState& state, const std::vector<EntryRange>& ranges) {
  const auto bytes_of = [](const Tensor& tensor, const EntryRange& range) {
    const std::size_t size = tensor.itemsize();
    return std::span<const std::byte>(
        tensor.raw_data() + static_cast<std::size_t>(range.begin) * size,
        static_cast<std::size_t>(range.end - range.begin) * size);
  };
  if (ranges.empty() || state.values.nbytes() < kMinPrefetchBytes) return;
  bool is_resident = true;
  for (const std::size_t first : {std::size_t{0}, ranges.size() / 2}) {
    const auto sample =
        std::find_if(ranges.begin() + static_cast<std::ptrdiff_t>(first), ranges.end(),
                     [](const EntryRange& range) { return range.begin < range.end; });
    if (sample != ranges.end()) is_resident &= os::is_resident(bytes_of(state.values, *sample));
  }
  if (is_resident) return;
  std::vector<std::span<const std::byte>> bytes;
  for (std::size_t i = 0; i < ranges.size();) {
    EntryRange run = ranges[i++];
    while (i < ranges.size() && ranges[i].begin == run.end) run.end = ranges[i++].end;
    if (run.begin == run.end) continue;
    bytes.push_back(bytes_of(state.minor_indices, run));
    bytes.push_back(bytes_of(state.values, run));
  }
  os::will_need(bytes);
}

CompressedRows gather_major(const SparseState& state, std::span<const std::int64_t> major_indices,
                            bool with_numbers) {
  return with_index_type(state.minor_indices.dtype(), [&](auto index) {
    return gather_typed<decltype(index)>(state, major_indices, with_numbers);
  });
}

PaddedRows gather_padded(const SparseState& state, std::span<const std::int64_t> major_indices) {
  return with_index_type(state.minor_indices.dtype(), [&](auto index) {
    return pad_typed<decltype(index)>(state, major_indices);
  });
}

Tensor gather_dense(const SparseState& state, std::span<const std::int64_t> major_indices,
                    bool as_columns) {
  const std::vector<EntryRange> ranges = entry_ranges(state, major_indices);
  prefetch_ranges(state, ranges);
  const auto count = static_cast<std::int64_t>(major_indices.size());
  Shape shape = {count, state.minor_size()};
  if (as_columns) std::swap(shape[0], shape[1]);
  const std::uint64_t size_bytes = nbytes_of(state.values.dtype(), shape);
  Tensor dense(state.values.dtype(), std::move(shape),
               state.pool.take(static_cast<std::size_t>(size_bytes)));
  if (size_bytes == 0) return dense;
  with_index_type(state.minor_indices.dtype(), [&](auto index) {
    with_element_type(state.values.itemsize(), [&](auto element) {
      scatter<decltype(index), decltype(element)>(state, major_indices, ranges, as_columns, dense);
    });
  });
  return dense;
}

}  // namespace tenfold
