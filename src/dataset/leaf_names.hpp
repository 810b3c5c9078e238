#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>
#include <tenfold/schema.hpp>

namespace tenfold {

/// The validity of a column named "x" has the name "x.valid" in rows, batches and files.
inline constexpr std::string_view kValiditySuffix = ".valid";

/// Names the leaves of all columns after the columns, like name_leaves(Column&). The names are
/// unique, and differ from the members of tensordict's metadata, such as "shape". Only the leaf of
/// a column's values may have the name of the column.
///
/// With columns "x" (strings) and "x.end" (numbers), the column "x.end" is stored as "x.end", and
/// the end offsets of "x" are stored as "x.end.1". A column "shape" is stored as "shape.1".
void name_leaves(std::vector<Column>& columns);

/// Sets the leaf names of a column named "x" to "x" and, for the leaves that the column has, to
/// "x.end", "x.item_end" and "x.valid".
void name_leaves(Column& column);

/// Returns the dotted names of all columns and of the records that contain them.
std::set<std::string> names_of(const std::vector<Column>& columns);

/// Throws Error(invalid_argument) if two columns or records have the same dotted name, such as
/// {"a.b"} and {"a", "b"}: functions that take dotted names would find only one of them. Data sets
/// with such columns can be opened.
///
/// Also throws it if, beside a nullable column "x", there is a column or record
/// "x.valid": readers could not tell which rows of "x" have no value. A column "x.valid" that has
/// one bool in each row and is not nullable is accepted, because it may be the validity of "x":
/// batches and views of select() can have it as a column. `where`: the data set.
void refuse_ambiguous_names(const std::vector<Column>& columns, const Path& where);

}  // namespace tenfold
