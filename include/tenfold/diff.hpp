#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

/// In what an entry that two trees share differs.
enum class ChangeKind : std::uint8_t {
  values,  ///< tensors of one dtype and shape
  dtype,   ///< tensors of one shape; the figures compare their values
  shape,   ///< tensors
  json,    ///< JSON values
  node,    ///< what the node is: its kind, batch size, class, or whether there is one
  type,    ///< a tensor on one side, a JSON value on the other
};
/// "values", "dtype", "shape", "json", "node", "type".
TENFOLD_API std::string_view name(ChangeKind kind) noexcept;

/// An entry that is in both trees and differs.
struct Change {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::string key;  ///< dotted name; empty for the root
  ChangeKind kind = ChangeKind::values;
  std::string a;  ///< what the first tree has: "float32 [3, 4]", "dict", JSON
  std::string b;

  // Figures of tensors of one shape; NaN where there are none. They leave out pairs in which both
  // are NaN or the same infinity. One NaN or infinity against anything else is an infinite
  // difference, and leaves no cosine. A float4_e2m1fn_x2 has two values an element; against
  // another dtype it has no figures.
  double max_abs = kNone;           ///< greatest |a - b|
  double rel_l2 = kNone;            ///< |a - b| / |a|, Euclidean norms of all values
  double cosine = kNone;            ///< of the angle between all values of a and all of b
  std::uint64_t num_different = 0;  ///< values beyond the tolerance
};

/// What differs between two trees, in the order of the first.
struct DiffReport {
  std::vector<std::string> added;    ///< dotted names of tensors and values in `b` only
  std::vector<std::string> removed;  ///< in `a` only
  std::vector<Change> changed;
  std::uint64_t num_leaves = 0;  ///< tensors and JSON values that both have
  std::uint64_t num_bytes = 0;   ///< of the first tree's tensors among them
  bool same() const noexcept { return added.empty() && removed.empty() && changed.empty(); }
};

/// Values are the same if |a - b| <= atol + rtol * |b|, as in torch.allclose with equal_nan. With
/// zeros, the default, they are compared exactly, integers of 64 bits too.
struct DiffOptions {
  double rtol = 0;
  double atol = 0;
  int num_threads = 0;
  Monitor* monitor = nullptr;
};

/// Compares what two trees hold, in parallel and in memory that does not grow with the tensors.
/// Tensors and JSON values are matched by path, else by dotted name, so that a file of flat names
/// fits a nested tree; the order of keys does not count, nor whether a dict is an OrderedDict, nor
/// do strides and ties. JSON values are
/// compared exactly, whatever the tolerance. Of opaque nodes the class and the parts are compared;
/// one that stands for bytes which are not read (of a quantized tensor) differs from every other.
/// Throws Error(invalid_argument) for a tolerance that is
/// negative or NaN, and what open() and Leaf::read throw.
TENFOLD_API DiffReport diff(const TensorDict& a, const TensorDict& b,
                            const DiffOptions& options = {});

/// The same of two paths, each in any format.
TENFOLD_API DiffReport diff(const Path& a, const Path& b, const DiffOptions& options = {});

}  // namespace tenfold
