#pragma once

#include <string>

#include <tenfold/schema.hpp>

namespace tenfold {

/// True if rows of both columns can be concatenated. The columns may have different leaf paths.
bool are_compatible(const Column& a, const Column& b);

/// For messages: "int64 [3], ragged, nullable", and the unit if there is one.
std::string describe(const Column& column);

}  // namespace tenfold
