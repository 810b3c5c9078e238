#include "io/diff/diff_values.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "core/tensor/cast.hpp"
#include "core/tensor/integer_type.hpp"
#include "formats/shared/progress.hpp"
#include "io/check_supported.hpp"
#include "io/elements.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {

using namespace detail;
namespace {

constexpr std::uint64_t kElementsPerTask = std::uint64_t{1} << 20;
constexpr std::uint64_t kElementsPerRead = std::uint64_t{1} << 15;
constexpr std::size_t kBlockElements = 1024;  ///< compared at once: their doubles fit into L1

/// The squares of doubles above the first limit may overflow, and those below the second may
/// underflow, so their sums need long double.
constexpr double kLargeForSquares = 1e140;
constexpr double kSmallForSquares = 1e-140;

/// Statistics of a run of pairs of values. The sums of squares are long double, because they can
/// exceed the range of double.
struct Sums {
  std::uint64_t num_different = 0;
  double max_abs = 0;
  long double squares_a = 0;
  long double squares_b = 0;
  long double squares_difference = 0;
  long double product = 0;
  bool infinite = false;  ///< NaN or infinity where the other tensor has another value

  void merge(const Sums& other) {
    num_different += other.num_different;
    max_abs = std::max(max_abs, other.max_abs);
    squares_a += other.squares_a;
    squares_b += other.squares_b;
    squares_difference += other.squares_difference;
    product += other.product;
    infinite |= other.infinite;
  }
};

struct Tolerance {
  double rtol = 0;
  double atol = 0;
  /// True if a difference of that magnitude is within the tolerance for `b`. If `rtol` is infinite
  /// and `b` is 0, the tolerance is NaN, and only a difference of 0 is allowed.
  bool allows(double difference, double b) const noexcept {
    return difference == 0 || difference <= atol + rtol * std::abs(b);
  }
};

/// Adds the sums of the squares of `a`, `b` and `difference`, and the dot product of `a` and `b`.
template <class Sum>
void add_squares(Sums& sums, std::span<const double> a, std::span<const double> b,
                 std::span<const double> difference) {
  Sum squares_a = 0;
  Sum squares_b = 0;
  Sum squares = 0;
  Sum product = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares_a += static_cast<Sum>(a[i]) * a[i];
    squares_b += static_cast<Sum>(b[i]) * b[i];
    squares += static_cast<Sum>(difference[i]) * difference[i];
    product += static_cast<Sum>(a[i]) * b[i];
  }
  sums.squares_a += squares_a;
  sums.squares_b += squares_b;
  sums.squares_difference += squares;
  sums.product += product;
}

/// Chunks of two tensors as doubles, and their difference.
struct Piece {
  std::vector<double> a;
  std::vector<double> b;
  std::vector<double> difference;

  void resize(std::size_t count) {
    a.resize(count);
    b.resize(count);
    difference.resize(count);
  }
  void add_to(Sums& sums) const {
    double largest = 0;
    double smallest = std::numeric_limits<double>::infinity();
    for (const std::vector<double>* values : {&a, &b, &difference}) {
      for (const double value : *values) {
        const double magnitude = std::abs(value);
        largest = std::max(largest, magnitude);
        if (magnitude != 0) smallest = std::min(smallest, magnitude);
      }
    }
    if (largest > kLargeForSquares || smallest < kSmallForSquares) {
      add_squares<long double>(sums, a, b, difference);
    } else {
      add_squares<double>(sums, a, b, difference);
    }
  }
};

/// Handles two numbers of which at least one is NaN or infinite. Sets `same` to whether they are
/// equal or both NaN. If they are not the same, max_abs and rel_l2 of the pair become infinite.
/// Sets the numbers and the difference to 0, which excludes them from the sums.
void compare_non_finite(double& a, double& b, double& difference, bool& same, Sums& sums) {
  same = (std::isnan(a) && std::isnan(b)) || a == b;
  if (!same) sums.infinite = true;
  a = b = difference = 0;
}

/// The magnitude of a complex number, without avoidable overflow. std::hypot gives the same result,
/// but would link a symbol of glibc 2.35, so that the library would not load with an older glibc.
double magnitude_of(double real, double imag) { return std::abs(std::complex<double>(real, imag)); }

/// Compares the numbers of a chunk. A complex number is stored as two consecutive doubles, and the
/// magnitude of the complex difference is compared with the tolerance.
void compare_numbers(Piece& piece, bool are_complex, const Tolerance& tolerance, Sums& sums) {
  const std::size_t step = are_complex ? 2 : 1;
  for (std::size_t i = 0; i < piece.a.size(); i += step) {
    bool special_differs = false;
    double magnitude_b = 0;
    double magnitude = 0;
    for (std::size_t part = i; part < i + step; ++part) {
      double& a = piece.a[part];
      double& b = piece.b[part];
      double& difference = piece.difference[part];
      if (std::isfinite(a) && std::isfinite(b)) {
        difference = a - b;
        magnitude = part == i ? std::abs(difference) : magnitude_of(magnitude, difference);
        magnitude_b = part == i ? std::abs(b) : magnitude_of(magnitude_b, b);
      } else {
        bool same = false;
        compare_non_finite(a, b, difference, same, sums);
        special_differs |= !same;
      }
    }
    sums.max_abs = std::max(sums.max_abs, magnitude);
    if (special_differs || !tolerance.allows(magnitude, magnitude_b)) ++sums.num_different;
  }
  piece.add_to(sums);
}

/// Compares integers of one type exactly. Doubles cannot represent all 64-bit integers.
template <class T>
void compare_integers(std::span<const std::byte> a_bytes, std::span<const std::byte> b_bytes,
                      Piece& piece, const Tolerance& tolerance, Sums& sums) {
  const std::size_t count = a_bytes.size() / sizeof(T);
  piece.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    T a;
    T b;
    std::memcpy(&a, a_bytes.data() + i * sizeof(T), sizeof(T));
    std::memcpy(&b, b_bytes.data() + i * sizeof(T), sizeof(T));
    piece.a[i] = static_cast<double>(a);
    piece.b[i] = static_cast<double>(b);
    // Subtracting the smaller from the larger modulo 2^64 gives the distance, whatever the signs.
    const auto wide_a = static_cast<std::uint64_t>(a);
    const auto wide_b = static_cast<std::uint64_t>(b);
    const auto distance = static_cast<double>(a < b ? wide_b - wide_a : wide_a - wide_b);
    piece.difference[i] = distance;
    if (a == b) continue;
    sums.max_abs = std::max(sums.max_abs, distance);
    if (!tolerance.allows(distance, piece.b[i])) ++sums.num_different;
  }
  piece.add_to(sums);
}

/// Converts the elements in `bytes` to doubles: the real and the imaginary part of each element if
/// `as_complex`, otherwise as to_doubles() does. `values` must have space for all doubles.
void numbers_of(DType dtype, bool as_complex, std::span<const std::byte> bytes,
                std::span<double> values) {
  if (as_complex) {
    cast_elements(dtype, bytes.data(), DType::complex128,
                  reinterpret_cast<std::byte*>(values.data()), bytes.size() / itemsize(dtype));
  } else {
    to_doubles(dtype, bytes, values);
  }
}

void compare_piece(DType dtype_a, std::span<const std::byte> a, DType dtype_b,
                   std::span<const std::byte> b, Piece& piece, const Tolerance& tolerance,
                   Sums& sums) {
  if (dtype_a == dtype_b && is_integer(dtype_a)) {
    return with_integer_type(
        dtype_a, [&]<class T>(T) { compare_integers<T>(a, b, piece, tolerance, sums); });
  }
  const bool as_complex = is_complex(dtype_a) || is_complex(dtype_b);
  const std::size_t parts = as_complex ? 2 : doubles_per_element(dtype_a);
  piece.resize(a.size() / itemsize(dtype_a) * parts);
  numbers_of(dtype_a, as_complex, a, piece.a);
  numbers_of(dtype_b, as_complex, b, piece.b);
  compare_numbers(piece, as_complex, tolerance, sums);
}

/// Elements [begin, end) of a pair.
struct Task {
  std::size_t pair = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

std::uint64_t num_elements(const Leaf& leaf) { return leaf.nbytes() / itemsize(leaf.dtype()); }

std::vector<Task> tasks_of(const std::vector<LeafPair>& pairs,
                           const std::vector<std::size_t>& chosen) {
  std::vector<Task> tasks;
  for (const std::size_t i : chosen) {
    const std::uint64_t count = num_elements(pairs[i].a);
    for (std::uint64_t begin = 0; begin < count; begin += kElementsPerTask) {
      tasks.push_back({i, begin, std::min(count, begin + kElementsPerTask)});
    }
  }
  return tasks;
}

std::uint64_t bytes_of(const std::vector<LeafPair>& pairs, std::span<const Task> tasks) {
  std::uint64_t total = 0;
  for (const Task& task : tasks) {
    total += (task.end - task.begin) * itemsize(pairs[task.pair].a.dtype());
  }
  return total;
}

/// Reads the elements of `task` from both tensors piece by piece. Calls `use` with the bytes of
/// both pieces, until `use` returns false.
template <class Use>
void for_each_piece_of_both(const LeafPair& pair, const Task& task, const Use& use) {
  const std::size_t item_a = itemsize(pair.a.dtype());
  const std::size_t item_b = itemsize(pair.b.dtype());
  const std::uint64_t most = std::min(kElementsPerRead, task.end - task.begin);
  std::vector<std::byte> scratch_a(most * item_a);
  std::vector<std::byte> scratch_b(most * item_b);
  for (std::uint64_t at = task.begin; at < task.end; at += most) {
    const std::uint64_t count = std::min(most, task.end - at);
    const std::span<std::byte> a = std::span(scratch_a).first(count * item_a);
    const std::span<std::byte> b = std::span(scratch_b).first(count * item_b);
    pair.a.read(at * item_a, a);
    pair.b.read(at * item_b, b);
    if (!use(a, b)) return;
  }
}

bool bytes_agree(const LeafPair& pair, const Task& task) {
  bool agree = true;
  for_each_piece_of_both(pair, task,
                         [&](std::span<const std::byte> a, std::span<const std::byte> b) {
                           agree = std::memcmp(a.data(), b.data(), a.size()) == 0;
                           return agree;
                         });
  return agree;
}

/// Returns the pairs among `chosen` whose bytes differ. Both tensors of a chosen pair must have the
/// same dtype.
std::vector<std::size_t> differing_pairs(const std::vector<LeafPair>& pairs,
                                         const std::vector<std::size_t>& chosen,
                                         const DiffOptions& options) {
  const std::vector<Task> tasks = tasks_of(pairs, chosen);
  std::vector<std::atomic<bool>> disagrees(pairs.size());
  formats::Progress progress(options.monitor, bytes_of(pairs, tasks), "diff");
  os::parallel_for(
      tasks.size(), os::num_threads_for(options.num_threads),
      [&](std::size_t i) {
        std::atomic<bool>& known = disagrees[tasks[i].pair];
        if (!known && !bytes_agree(pairs[tasks[i].pair], tasks[i])) known = true;
        progress.add(bytes_of(pairs, std::span(&tasks[i], 1)));
      },
      [&] { progress.poll(); });
  progress.finish();
  std::vector<std::size_t> found;
  for (const std::size_t i : chosen) {
    if (disagrees[i]) found.push_back(i);
  }
  return found;
}

Sums sums_of(const LeafPair& pair, const Task& task, const Tolerance& tolerance) {
  Sums sums;
  Piece piece;
  const DType dtype_a = pair.a.dtype();
  const DType dtype_b = pair.b.dtype();
  const std::size_t item_a = itemsize(dtype_a);
  const std::size_t item_b = itemsize(dtype_b);
  for_each_piece_of_both(
      pair, task, [&](std::span<const std::byte> a, std::span<const std::byte> b) {
        const std::size_t count = a.size() / item_a;
        for (std::size_t i = 0; i < count; i += kBlockElements) {
          const std::size_t some = std::min(kBlockElements, count - i);
          compare_piece(dtype_a, a.subspan(i * item_a, some * item_a), dtype_b,
                        b.subspan(i * item_b, some * item_b), piece, tolerance, sums);
        }
        return true;
      });
  return sums;
}

PairDifference difference_of(const Sums& sums) {
  PairDifference difference;
  difference.differs = sums.num_different != 0;
  difference.num_different = sums.num_different;
  if (sums.infinite) {
    difference.max_abs = difference.rel_l2 = std::numeric_limits<double>::infinity();
    return difference;
  }
  difference.max_abs = sums.max_abs;
  const long double norm_a = std::sqrt(sums.squares_a);
  const long double norm_b = std::sqrt(sums.squares_b);
  // If all values of `a` are zero, the relative difference is 0 if those of `b` are too, and
  // infinite otherwise.
  difference.rel_l2 = sums.squares_difference == 0
                          ? 0
                          : static_cast<double>(std::sqrt(sums.squares_difference) / norm_a);
  if (norm_a != 0 && norm_b != 0) {
    const auto cosine = static_cast<double>(sums.product / norm_a / norm_b);
    difference.cosine = std::clamp(cosine, -1.0, 1.0);
  }
  return difference;
}

/// False if exactly one dtype is float4_e2m1fn_x2, which stores two values per element: the tensors
/// then have different numbers of values.
bool has_figures(const LeafPair& pair) {
  const bool packed_a = pair.a.dtype() == DType::float4_e2m1fn_x2;
  const bool packed_b = pair.b.dtype() == DType::float4_e2m1fn_x2;
  return packed_a == packed_b;
}

}  // namespace

std::vector<PairDifference> compare_values(std::vector<LeafPair> pairs,
                                           const DiffOptions& options) {
  std::vector<std::size_t> alike;  // indices of the pairs with equal dtypes
  std::vector<std::size_t> differing;
  std::vector<std::uint64_t> repeats(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    require_whole(pairs[i].a);
    require_whole(pairs[i].b);
    repeats[i] = drop_repeats({&pairs[i].a, &pairs[i].b});
    if (pairs[i].a.dtype() == pairs[i].b.dtype()) {
      alike.push_back(i);
    } else if (has_figures(pairs[i])) {
      differing.push_back(i);
    }
  }
  for (const std::size_t i : differing_pairs(pairs, alike, options)) differing.push_back(i);

  const std::vector<Task> tasks = tasks_of(pairs, differing);
  std::vector<Sums> sums(tasks.size());
  const Tolerance tolerance{options.rtol, options.atol};
  formats::Progress progress(options.monitor, bytes_of(pairs, tasks), "diff: figures");
  os::parallel_for(
      tasks.size(), os::num_threads_for(options.num_threads),
      [&](std::size_t i) {
        sums[i] = sums_of(pairs[tasks[i].pair], tasks[i], tolerance);
        progress.add(bytes_of(pairs, std::span(&tasks[i], 1)));
      },
      [&] { progress.poll(); });
  progress.finish();

  // Merge in a fixed order, so that the rounding of the sums is reproducible.
  std::vector<Sums> merged(pairs.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) merged[tasks[i].pair].merge(sums[i]);
  std::vector<PairDifference> differences(pairs.size());
  for (const std::size_t i : differing) {
    differences[i] = difference_of(merged[i]);
    differences[i].num_different *= repeats[i];
  }
  return differences;
}

}  // namespace tenfold
