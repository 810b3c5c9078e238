#pragma once

#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

/// What is wrong with a tree as rows, though its bytes are as they were written: ends of rows of
/// unequal length that do not rise, or an index of keys that does not find them. Nothing for a tree
/// without a schema. verify() asks it, so that one call checks all there is.
std::vector<Problem> check_rows_of(const TensorDict& tree);

}  // namespace tenfold
