#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/ingest.hpp>
#include <tenfold/schema.hpp>

namespace tenfold {

/// "raise", "skip" or "collect"; anything else is Error(invalid_argument).
OnError on_error_from(std::string_view name);

/// What a source's rows became.
struct SourceReport : IngestReport {
  Schema schema;
};

/// Which of `columns`, in the order of a source, are wanted: the records and columns that `names`
/// ("a", "a.b") name, in that order; all if there is no name.
/// Throws Error(key_not_found) for a name that is none of them.
std::vector<std::size_t> selected_columns(const std::vector<Column>& columns,
                                          const std::vector<std::string>& names,
                                          const std::string& where);

/// The position in `names` of the column's own, or of a record's around it; names.size() if there
/// is none.
std::size_t position_of(const KeyPath& column, const std::vector<std::string>& names);

}  // namespace tenfold
