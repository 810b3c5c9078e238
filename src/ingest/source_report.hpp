#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tenfold/ingest.hpp>
#include <tenfold/schema.hpp>

namespace tenfold {

/// Parses "raise", "skip" or "collect". Throws Error(invalid_argument) for any other name.
OnError on_error_from(std::string_view name);

/// The result of ingesting a source.
struct SourceReport : IngestReport {
  Schema schema;
};

/// Finds columns by name. A name ("a", "a.b") selects a column, or all columns in a record. A flat
/// column "a.b" takes precedence over column b of record a.
class ColumnsByName {
 public:
  explicit ColumnsByName(const std::vector<Column>& columns);
  /// Indices of the columns that `name` selects; empty for an unknown name.
  const std::vector<std::size_t>& at(const std::string& name) const;

 private:
  using Indices = std::unordered_map<std::string, std::vector<std::size_t>>;
  Indices flat_;  ///< columns outside of records
  Indices all_;   ///< columns by their dotted names, and by those of the records around them
};

/// Indices of the columns that `names` select, in the order of `names`; of all columns if `names`
/// is empty. Ignores unknown names.
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
