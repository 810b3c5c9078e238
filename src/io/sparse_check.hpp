#pragma once

#include <string>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// Reads the indices of every sparse tensor of the tree, and checks them by check_sparse_indices().
/// Throws an Error(corrupt) whose message starts with `where` and names the key.
void check_all_sparse_indices(const TensorDict& tree, const std::string& where);

}  // namespace tenfold
