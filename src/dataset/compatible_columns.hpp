#pragma once

#include <string>

#include <tenfold/schema.hpp>

namespace tenfold {

/// True if rows of both columns can be concatenated. The columns may have different leaf paths.
bool are_compatible(const Column& a, const Column& b);

/// "float32 [3], nullable"; for messages.
std::string describe(const Column& column);

}  // namespace tenfold
