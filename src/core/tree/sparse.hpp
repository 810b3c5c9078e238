#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"

namespace tenfold {

/// Names of the component tensors of a sparse layout, as in torch: {"indices", "values"} for
/// "sparse_coo"; empty for an unknown layout.
///
/// Jagged nested tensors of torch have components too, and use the same kind of node, with the
/// layout "jagged" and the components "values", "offsets" and optionally "lengths". The dense_shape
/// of such a node has -1 for the ragged dimension: [3, -1, 2] for values of shape [6, 2]. This
/// function omits "lengths".
std::span<const std::string_view> sparse_parts(std::string_view layout) noexcept;

inline constexpr std::string_view kJagged = "jagged";

/// True if `keys`, the keys of a node, are the component names of `layout`, in any order. For the
/// layout "jagged", "lengths" may be missing.
bool are_sparse_parts(std::span<const std::string> keys, std::string_view layout);

/// Sorts the components of a sparse tensor in the order of sparse_parts(); a file may have any
/// order.
void sort_sparse_parts(detail::Node& node);

/// Checks torch's invariants of a sparse tensor, because programs use its indices without checks.
/// Reads the indices and maps the values. Throws Error(corrupt) with a message that starts with
/// `where`, and what Leaf::tensor() and contiguous_of_file() throw.
void check_sparse_indices(const TensorDict& node, const base::Where& where);

}  // namespace tenfold
