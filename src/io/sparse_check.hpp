#pragma once

#include <string>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// Calls require_sound_sparse() for every sparse tensor of the tree, which reads the indices.
/// Throws Error(corrupt) that starts with `where` and names the key.
void require_sound_sparse_nodes(const TensorDict& tree, const std::string& where);

}  // namespace tenfold
