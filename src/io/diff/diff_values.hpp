#pragma once

#include <vector>

#include <tenfold/diff.hpp>

namespace tenfold {

/// Two tensors of one shape.
struct LeafPair {
  Leaf a;
  Leaf b;
};

/// The result for a pair. All members keep their initial values if the tensors have equal dtypes
/// and bytes, or if exactly one of the dtypes is float4_e2m1fn_x2.
struct PairDifference {
  bool differs = false;  ///< a value differs by more than the tolerance
  double max_abs = Change::kNone;
  double rel_l2 = Change::kNone;
  double cosine = Change::kNone;
  std::uint64_t num_different = 0;
};

/// Compares all pairs in parallel. Pairs of the same dtype are first compared bytewise, and pairs
/// with equal bytes are not read again.
std::vector<PairDifference> compare_values(std::vector<LeafPair> pairs, const DiffOptions& options);

}  // namespace tenfold
