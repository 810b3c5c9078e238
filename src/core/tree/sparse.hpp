#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// Names of the component tensors of a sparse layout, as in torch: {"indices", "values"} for
/// "sparse_coo"; empty for other layouts.
///
/// Jagged nested tensors of torch have components too, and use the same kind of node, with the
/// layout "jagged" and the components "values", "offsets" and optionally "lengths". Their
/// dense_shape has -1 for the ragged dimension: [3, -1, 2] for values of shape [6, 2].
std::span<const std::string_view> sparse_parts(std::string_view layout) noexcept;

inline constexpr std::string_view kJagged = "jagged";

/// True if the keys of a node are the components of that layout, in any order.
bool are_sparse_parts(std::span<const std::string> keys, std::string_view layout);

/// Sorts the components of a sparse tensor in torch's order. Files may have them in any order.
void sort_sparse_parts(Node& node);

/// Checks the invariants that torch requires of the components of a sparse tensor, above all that
/// indices are within the shape: a program that trusts them would read out of bounds. Reads the
/// indices. Throws Error(corrupt) whose message starts with `where`.
void require_sound_sparse(const TensorDict& node, const std::string& where);

}  // namespace tenfold
