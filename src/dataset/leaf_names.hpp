#pragma once

#include <vector>

#include <tenfold/schema.hpp>

namespace tenfold {

/// Names the leaves of all columns after the columns, like name_leaves(Column&). The names are
/// unique, and differ from the members of tensordict's metadata. The leaf of a column's values has
/// priority for the column's name.
/// With columns "x" (strings) and "x.end" (numbers), the latter keeps its name, and the end offsets
/// of "x" are stored as "x.end.1"; a column "shape" is stored as "shape.1".
void name_leaves(std::vector<Column>& columns);

/// Sets the leaf names of `column` to those of a new data set: "x", and those that it needs of
/// "x.end", "x.item_end" and "x.valid".
void name_leaves(Column& column);

}  // namespace tenfold
