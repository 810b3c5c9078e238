#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"

namespace tenfold {

/// The tensors of a sparse tensor of that layout, as torch names them: {"indices", "values"} of
/// "sparse_coo"; none of what is no sparse layout.
///
/// Torch's jagged nested tensors are made of parts, too, and are nodes of the same kind: of the
/// layout "jagged", with the parts "values", "offsets" and where they have them "lengths". Their
/// dense_shape has -1 where the lengths differ: [3, -1, 2] of values [6, 2].
std::span<const std::string_view> sparse_parts(std::string_view layout) noexcept;

inline constexpr std::string_view kJagged = "jagged";

/// True if the keys of a node are the parts of that layout, in any order.
bool are_sparse_parts(std::span<const std::string> keys, std::string_view layout);

/// Puts the parts of a sparse tensor in torch's order. A file may name them in another one.
void sort_sparse_parts(detail::Node& node);

/// What torch demands of the parts of a sparse tensor, indices within the shape above all: a
/// program that trusts them would read beyond its memory. Reads the indices. Throws Error(corrupt)
/// that starts with `where`.
void require_sound_sparse(const TensorDict& node, const base::Where& where);

}  // namespace tenfold
