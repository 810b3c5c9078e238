#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

/// What differs between two entries or nodes of the same name: the kind of a Change.
enum class ChangeKind : std::uint8_t {
  values,  ///< the values of two tensors of the same dtype and shape
  dtype,   ///< the dtypes of two tensors of the same shape; their values are compared, too
  shape,   ///< the shapes of two tensors
  json,    ///< two JSON values
  /// The kind, batch size, class, ... of two nodes. Or a node that only one tree has, although the
  /// other tree has some of its entries, under the same dotted names.
  node,
  type,  ///< a tensor on one side, a JSON value on the other
};
/// Returns the name of the kind: "values", "dtype", "shape", "json", "node", "type".
TENFOLD_API std::string to_string(ChangeKind kind);

/// An entry or a node that differs.
struct Change {
  /// The value of a measure below that is not computed: NaN.
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::string key;                       ///< dotted name; empty for the root
  ChangeKind kind = ChangeKind::values;  ///< what differs
  /// A description of the entry in the first tree: "float32 [3, 4]", "dict", "no node", or at most
  /// 200 bytes of a JSON value. If these bytes are equal in both trees, `a` and `b` instead contain
  /// the path of the first difference and the value there.
  std::string a;
  std::string b;  ///< the description of the entry in the second tree

  // Measures of the difference, computed only for tensors of the same shape. They exclude pairs in
  // which both values are NaN or the same infinity. In any other pair with NaN or infinity, the
  // difference counts as infinite; then there is no cosine. A float4_e2m1fn_x2 has two values per
  // element, and is not compared with another dtype.
  double max_abs = kNone;           ///< greatest |a - b|
  double rel_l2 = kNone;            ///< |a - b| / |a|, Euclidean norms of all values
  double cosine = kNone;            ///< cosine of the angle between a and b; kNone if one is all 0
  std::uint64_t num_different = 0;  ///< number of values that differ by more than the tolerance
};

/// The differences between two trees. In each list, nodes come first. Tensors and JSON values
/// follow in the order of the first tree, those of `added` in the order of the second.
struct DiffReport {
  /// Dotted names of the tensors, JSON values and empty nodes that only `b` has.
  std::vector<std::string> added;
  /// Dotted names of the tensors, JSON values and empty nodes that only `a` has.
  std::vector<std::string> removed;
  std::vector<Change> changed;   ///< entries that are in both and differ, and changed nodes
  std::uint64_t num_leaves = 0;  ///< number of tensors and JSON values in both
  std::uint64_t num_bytes = 0;   ///< bytes of these tensors in the first tree
  /// True if there are no differences.
  bool same() const noexcept { return added.empty() && removed.empty() && changed.empty(); }
};

/// Options of diff(). Values are equal if |a - b| <= atol + rtol * |b|, as in torch.allclose with
/// equal_nan. If both tolerances are 0 (the default), the comparison is exact, also for 64-bit
/// integers of one dtype.
struct DiffOptions {
  double rtol = 0;             ///< relative tolerance
  double atol = 0;             ///< absolute tolerance
  int num_threads = 0;         ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
  Monitor* monitor = nullptr;  ///< observes the call
};

/// Compares two trees, in parallel and in bounded memory. Tensors and JSON values are matched by
/// path, then by dotted name, so that a file of flat names matches a nested tree. The order of
/// keys, dict against OrderedDict, strides and shared storage are ignored. JSON values are compared
/// exactly, whatever the tolerance. Opaque nodes are compared by class and arguments. A node whose
/// bytes are not read (such as a storage of a .pt file that no tensor uses) counts as a difference
/// even if both trees have it. Throws Error(invalid_argument) for a negative or NaN tolerance, and
/// what open() and Leaf::read throw.
TENFOLD_API DiffReport diff(const TensorDict& a, const TensorDict& b,
                            const DiffOptions& options = {});

/// Opens two paths, each in any format, and compares their trees.
TENFOLD_API DiffReport diff(const Path& a, const Path& b, const DiffOptions& options = {});

}  // namespace tenfold
