#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

/// The kind of difference of an entry that is in both trees.
enum class ChangeKind : std::uint8_t {
  values,  ///< tensors of one dtype and shape
  dtype,   ///< tensors of one shape; the figures compare their values
  shape,   ///< tensors
  json,    ///< JSON values
  node,    ///< nodes: kind, batch size, class, or a node on one side only
  type,    ///< a tensor on one side, a JSON value on the other
};
/// "values", "dtype", "shape", "json", "node", "type".
TENFOLD_API std::string to_string(ChangeKind kind);

/// An entry that is in both trees and differs.
struct Change {
  /// A figure that there is not: NaN.
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::string key;                       ///< dotted name; empty for the root
  ChangeKind kind = ChangeKind::values;  ///< what differs
  std::string a;  ///< the entry of the first tree: "float32 [3, 4]", "dict", JSON
  std::string b;  ///< the entry of the second tree

  // Figures of tensors of one shape; NaN if there are none. They exclude pairs in which both are
  // NaN or the same infinity. One NaN or infinity against another value is an infinite difference,
  // without a cosine. A float4_e2m1fn_x2 has two values per element, and no figures against
  // another dtype.
  double max_abs = kNone;           ///< greatest |a - b|
  double rel_l2 = kNone;            ///< |a - b| / |a|, Euclidean norms of all values
  double cosine = kNone;            ///< of the angle between all values of a and all of b
  std::uint64_t num_different = 0;  ///< values beyond the tolerance
};

/// The differences between two trees, in the order of the first.
struct DiffReport {
  std::vector<std::string> added;    ///< dotted names of tensors and values in `b` only
  std::vector<std::string> removed;  ///< in `a` only
  std::vector<Change> changed;       ///< in both
  std::uint64_t num_leaves = 0;      ///< tensors and JSON values that both have
  std::uint64_t num_bytes = 0;       ///< of the first tree's tensors among them
  /// True without differences.
  bool same() const noexcept { return added.empty() && removed.empty() && changed.empty(); }
};

/// Values are the same if |a - b| <= atol + rtol * |b|, as in torch.allclose with equal_nan. With
/// zeros, the default, the comparison is exact, also for 64-bit integers.
struct DiffOptions {
  double rtol = 0;             ///< relative tolerance
  double atol = 0;             ///< absolute tolerance
  int num_threads = 0;         ///< 0: min(8, cores)
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Compares two trees, in parallel and in bounded memory. Tensors and JSON values are matched by
/// path, then by dotted name, so that a file of flat names matches a nested tree. The order of
/// keys, dict against OrderedDict, strides and shared storage are ignored. JSON values are compared
/// exactly, whatever the tolerance. Opaque nodes are compared by class and arguments; one whose
/// bytes are not read (of a quantized tensor) differs from every other. Throws
/// Error(invalid_argument) for a negative or NaN tolerance, and what open() and Leaf::read throw.
TENFOLD_API DiffReport diff(const TensorDict& a, const TensorDict& b,
                            const DiffOptions& options = {});

/// Compares two paths, each in any format.
TENFOLD_API DiffReport diff(const Path& a, const Path& b, const DiffOptions& options = {});

}  // namespace tenfold
