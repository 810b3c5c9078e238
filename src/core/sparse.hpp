#pragma once

#include <array>
#include <span>
#include <string_view>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// The tensors of a sparse tensor of that layout, as torch names them: {"indices", "values"} of
/// "sparse_coo"; none of what is no sparse layout.
std::span<const std::string_view> sparse_parts(std::string_view layout) noexcept;

/// What torch demands of the parts of a sparse tensor, indices within the shape above all: a
/// program that trusts them would read beyond its memory. Reads the indices. Throws Error(corrupt)
/// that starts with `where`.
void require_sound_sparse(const TensorDict& node, const std::string& where);

}  // namespace tenfold
