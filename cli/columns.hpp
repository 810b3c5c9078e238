#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/inspect.hpp>

namespace tenfold::cli {

/// The data set of a tree that has a schema; nullopt for a tree without a schema.
std::optional<Dataset> dataset_of(const TensorDict& tree);

/// The columns that KEY arguments name, in the order of the schema; all columns if there are no
/// arguments. Throws Error(key_not_found), with a suggestion of similar names, if a name is
/// unknown.
std::vector<Column> columns_of(const Dataset& data, const std::vector<std::string>& keys);

/// The type of a column's elements as text, such as "int32", "string" or "int32 or null".
std::string type_text(const Column& column);
/// The shape of a column as text, such as "[1000, 3]". A ragged dimension is "*".
std::string shape_text(const Dataset& data, const Column& column);
Value shape_json(const Dataset& data, const Column& column);
/// Total size of the leaves of a column.
std::uint64_t column_bytes(const Dataset& data, const Column& column);

/// The first rows of a column as JSON values: numbers, strings, lists, null.
std::vector<Value> first_values(const Dataset& data, const Column& column, std::int64_t num_rows);

struct ColumnStatistics {
  /// Statistics of the values that are not null. For strings, the counts are 0 and the rest is NaN.
  Statistics figures;
  std::uint64_t nulls = 0;  ///< number of rows without a value
};
ColumnStatistics statistics_of(const Dataset& data, const Column& column, Monitor& monitor);

}  // namespace tenfold::cli
