#pragma once

#include <string>

#include <tenfold/schema.hpp>

namespace tenfold {

/// True if rows of both columns can be joined; where they are stored may differ.
bool are_compatible(const Column& a, const Column& b);

/// "float32 [3], nullable"; for messages.
std::string describe(const Column& column);

}  // namespace tenfold
