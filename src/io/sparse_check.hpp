#pragma once

#include <string>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// Calls check_sparse_indices() for every sparse tensor of the tree, which reads the indices.
/// Throws Error(corrupt) that starts with `where` and names the key.
void check_all_sparse_indices(const TensorDict& tree, const std::string& where);

}  // namespace tenfold
