#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/ingest.hpp>
#include <tenfold/schema.hpp>

namespace tenfold {

/// Parses "raise", "skip" or "collect"; anything else is Error(invalid_argument).
OnError on_error_from(std::string_view name);

/// The result of ingesting a source.
struct SourceReport : IngestReport {
  Schema schema;
};

/// True for the column with this name ("a", "a.b"), and for a column in the record with it.
bool is_below(KeyPath column, const std::string& name);

/// Indices of the columns and of the columns in records that `names` ("a", "a.b") lists, in that
/// order; all columns if `names` is empty. Unknown names are ignored. A flat column "a.b" takes
/// precedence over column b of record a.
std::vector<std::size_t> known_columns(const std::vector<Column>& columns,
                                       const std::vector<std::string>& names);

/// The same, but throws Error(key_not_found) for an unknown name.
std::vector<std::size_t> selected_columns(const std::vector<Column>& columns,
                                          const std::vector<std::string>& names,
                                          const std::string& where);

/// The first position in `names` of the (dotted) name of the column or an enclosing record;
/// names.size() if there is none.
std::size_t position_of(const KeyPath& column, const std::vector<std::string>& names);

}  // namespace tenfold
