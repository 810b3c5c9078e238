#pragma once

#include <string>

#include <tenfold/schema.hpp>

namespace tenfold {

/// True if both columns have the same path, type and unit, so that their rows can be concatenated.
/// The type includes the shape, `ragged` and `nullable`. The leaves may have different paths.
bool are_compatible(const Column& a, const Column& b);

/// Returns a description for messages, such as `int64 [3], ragged, nullable, unit "m"`.
std::string describe(const Column& column);

}  // namespace tenfold
