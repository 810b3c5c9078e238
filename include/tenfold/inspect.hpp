#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

/// Selects the entries of `keys` without those of `exclude`. Tensors are not mapped, and usually
/// only the nodes in which a key may name an entry are read. A key is the path of an entry or of a
/// node (which selects everything below the node), or one string: a dotted name, or a glob over
/// dotted names. A list, tuple or lazy stack that loses an item before its end becomes a dict with
/// int keys, so that the other items keep their names. A part of an opaque node or of a sparse
/// tensor becomes a dict. A key that names a column of a data set, or a record, selects all leaves
/// of the column, such as its end offsets. The schema is removed if a column loses a part of its
/// leaves. If `keys` is not given, everything is selected. Throws Error(key_not_found), with
/// similar names, for a key that names nothing in the tree. Also throws it for a bare root
/// (NodeInfo::is_bare) if `keys` is given, even an empty list, or if `exclude` has a path.
///
///     tenfold::TensorDict weights = tenfold::select(td, {"model.*"}, {"*.bias"});
TENFOLD_API TensorDict select(const TensorDict& tree, const Keys& keys, const Keys& exclude = {});

/// Statistics of the values of a tensor. NaN and infinities are counted; min, max, mean and std
/// ignore them. A complex value counts by its magnitude, a bool as 0 or 1.
struct Statistics {
  std::uint64_t count = 0;  ///< number of finite values; if 0, min, max, mean and std are NaN
  double min = 0;           ///< the least finite value
  double max = 0;           ///< the greatest finite value
  double mean = 0;          ///< the mean of the finite values
  double std = 0;  ///< the standard deviation of the finite values (population: divided by count)
  std::uint64_t zeros = 0;  ///< number of values that are 0
  std::uint64_t nan = 0;    ///< number of values that are NaN
  std::uint64_t inf = 0;    ///< number of values that are infinite
};

/// Returns the statistics of all values of a leaf. Reads the whole leaf, in bounded memory unless
/// Leaf::read() decodes it as a whole. For a nested leaf, reads the values of all components.
/// `num_threads` 0 means TENFOLD_NUM_THREADS, or min(8, cores). Throws what Leaf::read throws.
TENFOLD_API Statistics statistics(const Leaf& leaf, int num_threads = 0,
                                  Monitor* monitor = nullptr);

/// Returns elements [begin, end) of the leaf, counted in row-major order, as strings that parse to
/// the same value: "1", "-0.5", "nan", "inf", "true", "1+2j". An element of float4_e2m1fn_x2 is a
/// pair of values: "0.5,-6". Throws Error(invalid_argument) if the range exceeds the leaf, and what
/// Leaf::read throws.
TENFOLD_API std::vector<std::string> element_texts(const Leaf& leaf, std::uint64_t begin,
                                                   std::uint64_t end);

}  // namespace tenfold
