#pragma once

#include <string>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// require_sound_sparse() of every sparse tensor of the tree: reads their indices. Throws
/// Error(corrupt) that starts with `where` and names the key.
void require_sound_sparse_nodes(const TensorDict& tree, const std::string& where);

}  // namespace tenfold
