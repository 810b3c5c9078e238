#include <tenfold/inspect.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "formats/shared/progress.hpp"
#include "io/check_supported.hpp"
#include "io/elements.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

constexpr std::uint64_t kStatElementsPerTask = std::uint64_t{1} << 20;
constexpr std::uint64_t kStatElementsPerRead = std::uint64_t{1} << 16;
/// Number of elements that are converted to double at a time: their doubles fit into the L1 cache.
constexpr std::uint64_t kElementsPerDescription = 2048;

/// If the largest magnitude of a block is above the first limit or below the second, sums of
/// squares may overflow or underflow in double, so that the block needs long double.
constexpr double kLargeForMoments = 1e140;
constexpr double kSmallForMoments = 1e-140;

/// Statistics of some values. merge() adds the statistics of other values accurately (Chan et al.
/// 1979). Sums of squares are long double, because they can exceed the range of double.
struct Partial {
  std::uint64_t count = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  long double mean = 0;
  long double squares = 0;  ///< sum of squared deviations from the mean
  std::uint64_t zeros = 0;
  std::uint64_t nan = 0;
  std::uint64_t inf = 0;

  void merge(const Partial& other) {
    zeros += other.zeros;
    nan += other.nan;
    inf += other.inf;
    if (other.count == 0) return;
    const auto n = static_cast<long double>(count);
    const auto m = static_cast<long double>(other.count);
    const long double delta = other.mean - mean;
    mean += delta * (m / (n + m));
    squares += other.squares + delta * delta * (n * (m / (n + m)));
    count += other.count;
    min = std::min(min, other.min);
    max = std::max(max, other.max);
  }
};

template <class Sum>
void set_moments(Partial& part, std::span<const double> values, Sum sum) {
  const Sum mean = sum / static_cast<Sum>(part.count);
  Sum squares = 0;
  for (const double value : values) {
    if (std::isfinite(value)) squares += (value - mean) * (value - mean);
  }
  part.mean = mean;
  part.squares = squares;
}

Partial partial_of(std::span<const double> values) {
  Partial part;
  double sum = 0;
  for (const double value : values) {
    if (std::isnan(value)) {
      ++part.nan;
    } else if (std::isinf(value)) {
      ++part.inf;
    } else {
      ++part.count;
      part.zeros += value == 0 ? 1 : 0;
      part.min = std::min(part.min, value);
      part.max = std::max(part.max, value);
      sum += value;
    }
  }
  if (part.count == 0) return part;
  const double largest = std::max(std::abs(part.min), std::abs(part.max));
  if (largest <= kLargeForMoments && (largest >= kSmallForMoments || largest == 0)) {
    set_moments(part, values, sum);
    return part;
  }
  long double wide_sum = 0;
  for (const double value : values) {
    if (std::isfinite(value)) wide_sum += value;
  }
  set_moments(part, values, wide_sum);
  return part;
}

Partial partial_of(const Leaf& leaf, std::uint64_t begin, std::uint64_t end) {
  const std::size_t item = itemsize(leaf.dtype());
  std::vector<std::byte> scratch(std::min<std::uint64_t>(kStatElementsPerRead, end - begin) * item);
  std::vector<double> values(kElementsPerDescription * doubles_per_element(leaf.dtype()));
  Partial part;
  for (std::uint64_t at = begin; at < end; at += kStatElementsPerRead) {
    const auto count = std::min<std::uint64_t>(kStatElementsPerRead, end - at);
    const std::span<std::byte> read = std::span(scratch).first(count * item);
    leaf.read(at * item, read);
    for (std::uint64_t i = 0; i < count; i += kElementsPerDescription) {
      const auto some = std::min<std::uint64_t>(kElementsPerDescription, count - i);
      part.merge(partial_of(to_doubles(leaf.dtype(), read.subspan(i * item, some * item), values)));
    }
  }
  return part;
}

}  // namespace

Statistics statistics(const Leaf& leaf, int num_threads, Monitor* monitor) {
  require_whole(leaf);
  Leaf distinct = leaf;
  const std::uint64_t repeats = drop_repeats({&distinct});
  const std::uint64_t size_bytes = distinct.nbytes();
  const std::uint64_t num_elements = size_bytes / itemsize(leaf.dtype());
  const std::uint64_t num_tasks = (num_elements + kStatElementsPerTask - 1) / kStatElementsPerTask;
  std::vector<Partial> parts(static_cast<std::size_t>(num_tasks));
  detail::formats::Progress progress(monitor, size_bytes, "stat");
  os::parallel_for(
      parts.size(), os::num_threads_for(num_threads),
      [&](std::size_t task) {
        const std::uint64_t begin = task * kStatElementsPerTask;
        const std::uint64_t end = std::min(num_elements, begin + kStatElementsPerTask);
        parts[task] = partial_of(distinct, begin, end);
        progress.add((end - begin) * itemsize(leaf.dtype()));
      },
      [&] { progress.poll(); });
  progress.finish();
  Partial all;
  for (const Partial& part : parts) all.merge(part);
  all.zeros *= repeats;
  all.nan *= repeats;
  all.inf *= repeats;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (all.count == 0) {
    return {0, kNone, kNone, kNone, kNone, all.zeros, all.nan, all.inf};
  }
  const auto mean = static_cast<double>(all.mean);
  const auto deviation =
      static_cast<double>(std::sqrt(all.squares / static_cast<long double>(all.count)));
  return {all.count * repeats, all.min, all.max, mean, deviation, all.zeros, all.nan, all.inf};
}

}  // namespace tenfold
