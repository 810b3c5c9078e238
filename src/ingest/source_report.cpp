#include "ingest/source_report.hpp"

#include <algorithm>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"

namespace tenfold {

OnError on_error_from(std::string_view name) {
  if (name == "raise") return OnError::raise;
  if (name == "skip") return OnError::skip;
  if (name == "collect") return OnError::collect;
  throw base::invalid_argument()
      .part("on_error")
      .expected("\"raise\", \"skip\" or \"collect\"")
      .found(base::quote(name));
}

bool is_below(KeyPath column, const std::string& name) {
  while (!column.empty() && dotted(column) != name) column.pop_back();
  return !column.empty();
}

std::size_t position_of(const KeyPath& column, const std::vector<std::string>& names) {
  const auto found =
      std::ranges::find_if(names, [&](const std::string& name) { return is_below(column, name); });
  return static_cast<std::size_t>(found - names.begin());
}

std::vector<std::size_t> known_columns(const std::vector<Column>& columns,
                                       const std::vector<std::string>& names) {
  std::vector<std::size_t> known;
  for (std::size_t i = 0; names.empty() && i < columns.size(); ++i) known.push_back(i);
  for (const std::string& name : names) {
    // A flat column with the name "a.b" takes precedence over column b of record a.
    const bool is_flat = std::ranges::any_of(
        columns, [&](const Column& column) { return column.path == KeyPath{name}; });
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const KeyPath& path = columns[i].path;
      const bool is_meant = is_flat ? path == KeyPath{name} : is_below(path, name);
      if (is_meant && std::ranges::find(known, i) == known.end()) known.push_back(i);
    }
  }
  return known;
}

std::vector<std::size_t> selected_columns(const std::vector<Column>& columns,
                                          const std::vector<std::string>& names,
                                          const std::string& where) {
  for (const std::string& name : names) {
    if (!known_columns(columns, {name}).empty()) continue;
    std::vector<std::string> candidates;
    for (const Column& column : columns) candidates.push_back(column.name());
    throw base::key_not_found(where)
        .problem("no column ", base::quote(name))
        .remedy(base::did_you_mean(name, candidates));
  }
  return known_columns(columns, names);
}

}  // namespace tenfold
