#include "io/copy.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/cast.hpp"
#include "core/tensor/strided_copy.hpp"
#include "formats/shared/progress.hpp"
#include "io/write_order.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

/// Bytes of the target that one task writes: large enough for the storage, small enough to share
/// one large tensor among the threads.
constexpr std::uint64_t kBytesPerTask = std::uint64_t{16} << 20;
/// Bytes read at a time where they cannot go straight to their place.
constexpr std::uint64_t kScratchBytes = std::uint64_t{1} << 20;

/// Elements [begin, end) of one copy.
struct Range {
  const LeafCopy* copy;
  std::uint64_t begin;
  std::uint64_t end;
};

std::vector<Range> ranges_of(const std::vector<LeafCopy>& copies, const Wave& wave) {
  std::vector<Range> ranges;
  for (const std::size_t position : wave) {
    const LeafCopy& copy = copies[position];
    const auto count = static_cast<std::uint64_t>(copy.to.numel());
    const std::uint64_t step = kBytesPerTask / copy.to.itemsize();
    for (std::uint64_t begin = 0; begin < count; begin += step) {
      ranges.push_back({&copy, begin, std::min(count, begin + step)});
    }
  }
  return ranges;
}

/// Where the element lies, if the target is contiguous.
std::byte* address(const Tensor& to, std::uint64_t element) {
  return to.raw_data() + element * to.itemsize();
}

/// Through scratch: reads, casts if need be, and puts the elements in their places.
void copy_through_scratch(const Range& range) {
  const Leaf& from = range.copy->from;
  const Tensor& to = range.copy->to;
  const std::size_t item = itemsize(from.dtype());
  const bool casts = from.dtype() != to.dtype();
  const std::uint64_t step = kScratchBytes / std::max(item, to.itemsize());
  const std::uint64_t most = std::min(step, range.end - range.begin);
  std::vector<std::byte> read(most * item);
  std::vector<std::byte> cast(casts && !to.is_contiguous() ? most * to.itemsize() : 0);
  for (std::uint64_t at = range.begin; at < range.end; at += step) {
    const std::uint64_t count = std::min(step, range.end - at);
    from.read(at * item, std::span(read).first(count * item));
    const std::byte* elements = read.data();
    if (casts) {
      std::byte* target = to.is_contiguous() ? address(to, at) : cast.data();
      cast_elements(from.dtype(), read.data(), to.dtype(), target, count);
      elements = target;
    }
    if (to.is_contiguous()) continue;
    const auto begin = static_cast<std::int64_t>(at);
    copy_from_contiguous(elements, to, begin, begin + static_cast<std::int64_t>(count));
  }
}

void copy_range(const Range& range) {
  const Tensor& to = range.copy->to;
  if (range.copy->from.dtype() != to.dtype() || !to.is_contiguous()) {
    copy_through_scratch(range);
    return;
  }
  const std::size_t size_bytes = (range.end - range.begin) * to.itemsize();
  range.copy->from.read(range.begin * to.itemsize(),
                        std::span(address(to, range.begin), size_bytes));
}

}  // namespace

void copy_leaves(const std::vector<LeafCopy>& copies, int num_threads, Monitor* monitor) {
  const std::vector<Wave> waves = write_order(copies);
  std::uint64_t total_bytes = 0;
  for (const Wave& wave : waves) {
    for (const std::size_t position : wave) total_bytes += copies[position].to.nbytes();
  }
  detail::formats::Progress progress(monitor, total_bytes, "load");
  for (const Wave& wave : waves) {
    const std::vector<Range> ranges = ranges_of(copies, wave);
    os::parallel_for(
        ranges.size(), os::num_threads_for(num_threads),
        [&](std::size_t i) {
          copy_range(ranges[i]);
          progress.add((ranges[i].end - ranges[i].begin) * ranges[i].copy->to.itemsize());
        },
        [&] { progress.poll(); });
  }
  progress.finish();
}

}  // namespace tenfold
