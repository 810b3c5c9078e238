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

/// True if `name` ("a", "a.b") is the name of the column or of a record that contains it.
bool is_below(KeyPath column, const std::string& name);

/// Indices of the columns that `names` selects, in the order of `names`; of all columns if `names`
/// is empty. A name ("a", "a.b") selects a column, or all columns in a record. Ignores unknown
/// names. A flat column "a.b" takes precedence over column b of record a.
std::vector<std::size_t> known_columns(const std::vector<Column>& columns,
                                       const std::vector<std::string>& names);

/// Like known_columns(), but throws Error(key_not_found) for an unknown name.
std::vector<std::size_t> selected_columns(const std::vector<Column>& columns,
                                          const std::vector<std::string>& names,
                                          const std::string& where);

/// The first position in `names` of the (dotted) name of the column or an enclosing record;
/// names.size() if there is none.
std::size_t position_of(const KeyPath& column, const std::vector<std::string>& names);

}  // namespace tenfold
