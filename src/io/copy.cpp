#include "io/copy.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/tensor/cast.hpp"
#include "core/tensor/strided_copy.hpp"
#include "formats/shared/progress.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

/// Indices in a list of copies.
using Wave = std::vector<std::size_t>;

/// The bytes from the first element of a target to its last. It may contain bytes of other targets
/// in between.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::size_t copy;
};

Extent extent_of(const Tensor& to, std::size_t copy) {
  std::uint64_t last = 0;  // cannot overflow, because a Tensor is inside its buffer
  for (std::size_t dim = 0; dim < to.shape().size(); ++dim) {
    last += static_cast<std::uint64_t>(to.shape()[dim] - 1) *
            static_cast<std::uint64_t>(to.strides()[dim]);
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(to.raw_data());
  return {begin, begin + (last + 1) * to.itemsize(), copy};
}

std::vector<Extent> sorted_extents(const std::vector<LeafCopy>& copies) {
  std::vector<Extent> extents;
  extents.reserve(copies.size());
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (copies[i].to.numel() != 0) extents.push_back(extent_of(copies[i].to, i));
  }
  std::ranges::sort(extents, {},
                    [](const Extent& extent) { return std::pair(extent.begin, extent.copy); });
  return extents;
}

/// The copies of a group in order, without copies that a later copy overwrites completely.
Wave without_overwritten(const std::vector<LeafCopy>& copies, Wave group) {
  std::ranges::sort(group, std::greater<>());
  std::set<std::tuple<const std::byte*, std::size_t, Shape, Shape>> seen;
  std::erase_if(group, [&](std::size_t i) {
    const Tensor& to = copies[i].to;
    return !seen.emplace(to.raw_data(), to.itemsize(), to.shape(), to.strides()).second;
  });
  std::ranges::reverse(group);
  return group;
}

/// Groups copies into waves, so that the result is the same as copying sequentially: copies of one
/// wave write disjoint bytes, and each wave waits for the previous one. Among copies to exactly the
/// same elements (tied parameters), only the last is kept. Copies without elements are in no wave.
/// Usually there is a single wave.
std::vector<Wave> write_order(const std::vector<LeafCopy>& copies) {
  const std::vector<Extent> extents = sorted_extents(copies);
  std::vector<Wave> waves;
  for (std::size_t first = 0; first < extents.size();) {
    Wave group;
    std::uintptr_t end = extents[first].end;
    while (first < extents.size() && (group.empty() || extents[first].begin < end)) {
      end = std::max(end, extents[first].end);
      group.push_back(extents[first++].copy);
    }
    if (group.size() > 1) group = without_overwritten(copies, std::move(group));
    if (waves.size() < group.size()) waves.resize(group.size());
    for (std::size_t i = 0; i < group.size(); ++i) waves[i].push_back(group[i]);
  }
  for (Wave& wave : waves) std::ranges::sort(wave);
  return waves;
}

/// Bytes of the target that one task writes: large enough for efficient reads from the storage, and
/// small enough to split a large tensor among threads.
constexpr std::uint64_t kBytesPerTask = std::uint64_t{16} << 20;
/// Read size if data cannot be read directly to its destination.
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

/// The address of an element of a contiguous target.
std::byte* address(const Tensor& to, std::uint64_t element) {
  return to.mutable_raw_data() + element * to.itemsize();
}

/// Reads to a scratch buffer, casts if needed, and scatters the elements.
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
