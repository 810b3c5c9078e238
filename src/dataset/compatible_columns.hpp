#pragma once

#include <string>

#include <tenfold/schema.hpp>

namespace tenfold {

/// True if rows of both columns can be concatenated. The columns may have different leaf paths.
bool are_compatible(const Column& a, const Column& b);

/// Returns a description for messages: "int64 [3], ragged, nullable", with the column's unit if it
/// has one.
std::string describe(const Column& column);

}  // namespace tenfold
