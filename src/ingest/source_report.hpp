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

/// Indices of the requested `columns`: the columns and records that `names` ("a", "a.b") lists, in
/// that order; all if `names` is empty. Throws Error(key_not_found) for an unknown name.
std::vector<std::size_t> selected_columns(const std::vector<Column>& columns,
                                          const std::vector<std::string>& names,
                                          const std::string& where);

/// Indices of the columns with that (dotted) name: one column, or those of a record. A flat column
/// "a.b" takes precedence over column b of record a.
std::vector<std::size_t> columns_named(const std::string& name, const std::vector<Column>& columns);

/// The first position in `names` of the (dotted) name of the column or an enclosing record;
/// names.size() if there is none.
std::size_t position_of(const KeyPath& column, const std::vector<std::string>& names);

}  // namespace tenfold
