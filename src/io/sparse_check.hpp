#pragma once

#include <string>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// Reads the indices of every sparse tensor of the tree, and checks them with
/// check_sparse_indices(), which throws an Error(corrupt) whose message starts with `where` and
/// names the key. Skips entries that tenfold cannot read.
void check_all_sparse_indices(const TensorDict& tree, const std::string& where);

}  // namespace tenfold
