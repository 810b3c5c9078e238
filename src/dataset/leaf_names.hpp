#pragma once

#include <vector>

#include <tenfold/schema.hpp>

namespace tenfold {

/// Names the leaves of all columns after them, as name_leaves() does, but so that no two are the
/// same, and none hides a member of tensordict's metadata. A column's own name goes to its values:
/// of columns "x" (a text) and "x.end" (a number) the latter keeps its name, and where the rows of
/// "x" end is stored as "x.end.1"; a column "shape" is stored as "shape.1".
void name_leaves(std::vector<Column>& columns);

/// Sets the leaf names of `column` to those of a new data set: "x", "x.end", "x.valid".
void name_leaves(Column& column);

}  // namespace tenfold
