// Copies lines of a matrix: rows of csr and coo, columns of csc.

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
/// Waking another thread takes as long as copying some hundred KiB.
constexpr std::uint64_t kMinBytesAThread = std::uint64_t{1} << 20U;
constexpr std::uint64_t kMinDenseBytesAThread = std::uint64_t{4} << 20U;
/// Larger buffers are zeroed with non-temporal stores: the zeros would be evicted before use.
constexpr std::uint64_t kMinPastCacheBytes = std::uint64_t{4} << 20U;
/// How many lines ahead entries are prefetched.
constexpr std::size_t kAheadLines = 8;
constexpr std::size_t kAheadEnds = 32;
/// Smaller matrices are not prefetched: page faults read them faster.
constexpr std::uint64_t kMinPrefetchBytes = std::uint64_t{1} << 20U;

/// Calls use(T{}) with the index type.
template <class Use>
auto with_index_type(DType dtype, const Use& use) {
  if (dtype == DType::int32) return use(std::int32_t{});
  return use(std::int64_t{});
}

Error fail(const SparseState& state, std::int64_t line) {
  return base::corrupt(state.where).part(state.line_name(), " ", line);
}

template <class Index>
std::vector<LineExtent> extents_in_ends(const SparseState& state,
                                        std::span<const std::int64_t> lines) {
  const Index* ends = state.ends.data<Index>();
  std::vector<LineExtent> extents(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::int64_t coming = lines[std::min(i + kAheadEnds, lines.size() - 1)];
    base::prefetch<base::kL1>(ends + coming);
    const std::int64_t begin = ends[lines[i]];
    const std::int64_t end = ends[lines[i] + 1];
    if (begin < 0 || begin > end || end > state.nnz) {
      throw fail(state, lines[i])
          .part("entries")
          .expected("a range within ", state.nnz)
          .found("[", begin, ", ", end, ")");
    }
    extents[i] = {begin, end};
  }
  return extents;
}

template <class Index>
std::vector<LineExtent> extents_in_coordinates(const SparseState& state,
                                               std::span<const std::int64_t> lines) {
  const Index* rows = state.lines.data<Index>();
  const Index* end = rows + state.nnz;
  std::vector<LineExtent> extents(lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto below = [](Index row, std::int64_t line) { return row < line; };
    const auto above = [](std::int64_t line, Index row) { return line < row; };
    const Index* first = std::lower_bound(rows, end, lines[i], below);
    const Index* last = std::upper_bound(first, end, lines[i], above);
    extents[i] = {first - rows, last - rows};
    // Binary search assumes sorted rows; in an unsorted file, entries of other rows may be between.
    const auto is_other = [&](Index row) { return row != lines[i]; };
    if (const Index* other = std::find_if(first, last, is_other); other != last) {
      throw fail(state, lines[i])
          .part("entries")
          .expected("rows in order")
          .found("one of row ", static_cast<std::int64_t>(*other));
    }
  }
  return extents;
}

std::uint64_t total_of(const std::vector<LineExtent>& extents) {
  std::uint64_t total = 0;
  for (const LineExtent& extent : extents) {
    total += static_cast<std::uint64_t>(extent.end - extent.begin);
  }
  return total;
}

/// One allocation for the numbers of several tensors.
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

/// Position of the first minor index that is out of range, or `count`.
template <class Index>
std::size_t first_outside(const Index* places, std::size_t count, std::int64_t length) {
  using Unsigned = std::make_unsigned_t<Index>;
  // As unsigned numbers, negative ones are large: a single comparison, which vectorises.
  Unsigned greatest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    greatest = std::max(greatest, static_cast<Unsigned>(places[i]));
  }
  if (count == 0 || static_cast<std::uint64_t>(greatest) < static_cast<std::uint64_t>(length)) {
    return count;
  }
  const auto is_outside = [length](Index place) { return place < 0 || place >= length; };
  return static_cast<std::size_t>(std::find_if(places, places + count, is_outside) - places);
}

/// Calls work(begin, end) for parts of [0, count), each large enough for a thread of its own.
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

/// Copies the elements of lines [first, last) consecutively; `out` is the destination of the first.
void copy_lines(const Tensor& elements, const std::vector<LineExtent>& extents, std::size_t first,
                std::size_t last, std::byte* out) {
  const auto size = static_cast<std::uint64_t>(elements.itemsize());
  const std::byte* from = elements.raw_data();
  for (std::size_t i = first; i < last; ++i) {
    const LineExtent& extent = extents[i];
    const LineExtent& coming = extents[std::min(i + kAheadLines, last - 1)];
    const auto bytes = static_cast<std::size_t>(extent.end - extent.begin) * size;
    if (bytes == 0) continue;
    copy_with_prefetch(from + static_cast<std::uint64_t>(coming.begin) * size,
                       from + static_cast<std::uint64_t>(extent.begin) * size, bytes, out);
    out += bytes;
  }
}

template <class Index>
void require_places(const SparseState& state, std::span<const std::int64_t> lines,
                    const std::vector<LineExtent>& extents, const Index* places,
                    std::size_t count) {
  const std::size_t bad = first_outside(places, count, state.line_length());
  if (bad == count) return;
  std::size_t line = 0;
  auto entries = static_cast<std::int64_t>(bad);
  while (entries >= extents[line].end - extents[line].begin) {
    entries -= extents[line].end - extents[line].begin;
    ++line;
  }
  throw_bad_place(state, lines[line], places[bad]);
}

template <class Index>
LineParts gather_typed(const SparseState& state, std::span<const std::int64_t> lines,
                       bool with_numbers) {
  const std::vector<LineExtent> extents = extents_of(state, lines);
  prefetch_extents(state, extents);
  const auto total = static_cast<std::size_t>(total_of(extents));
  if (total > static_cast<std::uint64_t>(std::numeric_limits<Index>::max())) {
    throw base::invalid_argument(state.where)
        .expected("lines whose ", total, " entries int32 can count")
        .found("too many")
        .remedy("take fewer");
  }
  const DType dtype = state.places.dtype();
  const std::uint64_t value_bytes = state.values.itemsize();
  Block block;
  const std::size_t at_ends = block.reserve((lines.size() + 1) * sizeof(Index));
  const std::size_t at_places = block.reserve(total * sizeof(Index));
  const std::size_t at_values = block.reserve(total * value_bytes);
  const std::size_t at_numbers = block.reserve(with_numbers ? total * 2 * sizeof(std::int64_t) : 0);
  block.take(state.pool);

  LineParts made;
  const auto count = static_cast<std::int64_t>(total);
  made.ends = block.tensor(at_ends, dtype, {static_cast<std::int64_t>(lines.size()) + 1});
  made.places = block.tensor(at_places, dtype, {count});
  made.values = block.tensor(at_values, state.values.dtype(), {count});
  Index* ends = made.ends.mutable_data<Index>();
  ends[0] = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    ends[i + 1] = static_cast<Index>(ends[i] + (extents[i].end - extents[i].begin));
  }
  in_parts(lines.size(), total * (sizeof(Index) + value_bytes), kMinBytesAThread,
           [&](std::size_t first, std::size_t last) {
             const auto before = static_cast<std::uint64_t>(ends[first]);
             copy_lines(state.places, extents, first, last,
                        made.places.mutable_raw_data() + before * sizeof(Index));
             copy_lines(state.values, extents, first, last,
                        made.values.mutable_raw_data() + before * value_bytes);
           });
  require_places(state, lines, extents, made.places.data<Index>(), total);
  if (!with_numbers) return made;
  made.numbers = block.tensor(at_numbers, DType::int64, {2, count});
  std::int64_t* numbers = made.numbers.mutable_data<std::int64_t>();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::fill(numbers + ends[i], numbers + ends[i + 1], static_cast<std::int64_t>(i));
  }
  const Index* places = made.places.data<Index>();
  std::copy(places, places + total, numbers + total);
  made.places = Tensor();
  return made;
}

template <class Index>
PaddedLines pad_typed(const SparseState& state, std::span<const std::int64_t> lines) {
  const std::vector<LineExtent> extents = extents_of(state, lines);
  prefetch_extents(state, extents);
  std::int64_t longest = 0;
  for (const LineExtent& extent : extents) longest = std::max(longest, extent.end - extent.begin);
  const Shape shape = {static_cast<std::int64_t>(lines.size()), longest};
  const std::size_t value_bytes = state.values.itemsize();
  Block block;
  const std::size_t at_places = block.reserve(nbytes_of(state.places.dtype(), shape));
  const std::size_t at_values = block.reserve(nbytes_of(state.values.dtype(), shape));
  const std::size_t at_lengths = block.reserve(lines.size() * sizeof(std::int64_t));
  block.take(state.pool);
  PaddedLines made;
  made.places = block.tensor(at_places, state.places.dtype(), shape);
  made.values = block.tensor(at_values, state.values.dtype(), shape);
  made.lengths = block.tensor(at_lengths, DType::int64, {shape[0]});
  const auto width = static_cast<std::size_t>(longest);
  const auto pad = [&](const Tensor& from, const Tensor& into, std::size_t i) {
    const std::size_t size = from.itemsize();
    const auto count = static_cast<std::size_t>(extents[i].end - extents[i].begin) * size;
    const LineExtent& coming = extents[std::min(i + kAheadLines, extents.size() - 1)];
    std::byte* out = into.mutable_raw_data() + i * width * size;
    copy_with_prefetch(from.raw_data() + static_cast<std::size_t>(coming.begin) * size,
                       from.raw_data() + static_cast<std::size_t>(extents[i].begin) * size, count,
                       out);
    std::memset(out + count, 0, width * size - count);
  };
  in_parts(lines.size(), lines.size() * width * (sizeof(Index) + value_bytes), kMinBytesAThread,
           [&](std::size_t first, std::size_t last) {
             for (std::size_t i = first; i < last && width > 0; ++i) {
               pad(state.places, made.places, i);
               pad(state.values, made.values, i);
             }
           });
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto count = static_cast<std::size_t>(extents[i].end - extents[i].begin);
    made.lengths.mutable_data<std::int64_t>()[i] = static_cast<std::int64_t>(count);
    if (count == 0) continue;
    const Index* places = made.places.data<Index>() + i * width;
    const std::size_t bad = first_outside(places, count, state.line_length());
    if (bad < count) throw_bad_place(state, lines[i], places[bad]);
  }
  return made;
}

/// Writes the elements of a line to the positions of their minor indices, `stride` elements apart.
template <class Index, class Element>
void scatter_line(const SparseState& state, std::int64_t line, const LineExtent& extent,
                  Element* out, std::int64_t stride) {
  const Index* places = state.places.data<Index>();
  const auto* values = reinterpret_cast<const Element*>(state.values.raw_data());
  const std::int64_t length = state.line_length();
  for (std::int64_t i = extent.begin; i < extent.end; ++i) {
    const std::int64_t place = places[i];
    if (place < 0 || place >= length) throw_bad_place(state, line, place);
    std::memcpy(out + place * stride, values + i, sizeof(Element));
  }
}

struct Wide {
  std::uint64_t halves[2];
};

/// Calls use(Element{}) with a type of the size of the values.
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
void scatter(const SparseState& state, std::span<const std::int64_t> lines,
             const std::vector<LineExtent>& extents, bool as_columns, const Tensor& dense) {
  auto* out = reinterpret_cast<Element*>(dense.mutable_raw_data());
  const std::int64_t length = state.line_length();
  const auto count = static_cast<std::int64_t>(lines.size());
  if (as_columns) {
    base::zero_past_cache({dense.mutable_raw_data(), static_cast<std::size_t>(dense.nbytes())});
    for (std::size_t i = 0; i < lines.size(); ++i) {
      scatter_line<Index>(state, lines[i], extents[i], out + i, count);
    }
    return;
  }
  in_parts(lines.size(), dense.nbytes(), kMinDenseBytesAThread,
           [&](std::size_t first, std::size_t last) {
             const std::size_t row_bytes = static_cast<std::size_t>(length) * sizeof(Element);
             std::byte* begin = dense.mutable_raw_data() + first * row_bytes;
             const bool is_large = (last - first) * row_bytes >= kMinPastCacheBytes;
             if (is_large) base::zero_past_cache({begin, (last - first) * row_bytes});
             for (std::size_t i = first; i < last; ++i) {
               Element* row = out + static_cast<std::int64_t>(i) * length;
               if (!is_large) std::memset(row, 0, row_bytes);
               scatter_line<Index>(state, lines[i], extents[i], row, 1);
             }
           });
}

}  // namespace

std::vector<LineExtent> extents_of(const SparseState& state, std::span<const std::int64_t> lines) {
  if (lines.empty()) return {};
  if (state.layout != SparseLayout::coo) {
    return with_index_type(state.ends.dtype(), [&](auto index) {
      return extents_in_ends<decltype(index)>(state, lines);
    });
  }
  require_sorted(state);
  return with_index_type(state.lines.dtype(), [&](auto index) {
    return extents_in_coordinates<decltype(index)>(state, lines);
  });
}

void prefetch_extents(const SparseState& state, const std::vector<LineExtent>& extents) {
  const auto bytes_of = [](const Tensor& tensor, const LineExtent& extent) {
    const std::size_t size = tensor.itemsize();
    return std::span<const std::byte>(
        tensor.raw_data() + static_cast<std::size_t>(extent.begin) * size,
        static_cast<std::size_t>(extent.end - extent.begin) * size);
  };
  if (extents.empty() || state.values.nbytes() < kMinPrefetchBytes) return;
  bool is_resident = true;
  for (const std::size_t sample : {std::size_t{0}, extents.size() / 2}) {
    const LineExtent& extent = extents[sample];
    if (extent.begin < extent.end) is_resident &= os::is_resident(bytes_of(state.values, extent));
  }
  if (is_resident) return;
  std::vector<std::span<const std::byte>> ranges;
  for (std::size_t i = 0; i < extents.size();) {
    LineExtent run = extents[i++];
    while (i < extents.size() && extents[i].begin == run.end) run.end = extents[i++].end;
    if (run.begin == run.end) continue;
    ranges.push_back(bytes_of(state.places, run));
    ranges.push_back(bytes_of(state.values, run));
  }
  os::will_need(ranges);
}

LineParts gather_lines(const SparseState& state, std::span<const std::int64_t> lines,
                       bool with_numbers) {
  return with_index_type(state.places.dtype(), [&](auto index) {
    return gather_typed<decltype(index)>(state, lines, with_numbers);
  });
}

PaddedLines gather_padded(const SparseState& state, std::span<const std::int64_t> lines) {
  return with_index_type(state.places.dtype(),
                         [&](auto index) { return pad_typed<decltype(index)>(state, lines); });
}

Tensor gather_dense(const SparseState& state, std::span<const std::int64_t> lines,
                    bool as_columns) {
  const std::vector<LineExtent> extents = extents_of(state, lines);
  prefetch_extents(state, extents);
  const auto count = static_cast<std::int64_t>(lines.size());
  Shape shape = {count, state.line_length()};
  if (as_columns) std::swap(shape[0], shape[1]);
  const std::uint64_t size_bytes = nbytes_of(state.values.dtype(), shape);
  Tensor dense(state.values.dtype(), std::move(shape),
               state.pool.take(static_cast<std::size_t>(size_bytes)));
  if (size_bytes == 0) return dense;
  with_index_type(state.places.dtype(), [&](auto index) {
    with_element_type(state.values.itemsize(), [&](auto element) {
      scatter<decltype(index), decltype(element)>(state, lines, extents, as_columns, dense);
    });
  });
  return dense;
}

}  // namespace tenfold
