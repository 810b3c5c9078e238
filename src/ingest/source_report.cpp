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

namespace {

/// True if `name` is the dotted name of the column or of an enclosing record.
bool is_within(const KeyPath& column, std::string_view name) {
  for (const std::string& key : column) {
    if (!name.starts_with(key)) return false;
    name.remove_prefix(key.size());
    if (name.empty()) return true;
    if (name.front() != '.') return false;
    name.remove_prefix(1);
  }
  return false;
}

}  // namespace

std::size_t position_of(const KeyPath& column, const std::vector<std::string>& names) {
  const auto found =
      std::ranges::find_if(names, [&](const std::string& name) { return is_within(column, name); });
  return static_cast<std::size_t>(found - names.begin());
}

std::vector<std::size_t> columns_named(const std::string& name,
                                       const std::vector<Column>& columns) {
  const auto is_flat = [&](const Column& column) {
    return column.path.size() == 1 && column.path[0] == name;
  };
  const bool has_flat = std::ranges::any_of(columns, is_flat);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const bool is_meant = has_flat ? is_flat(columns[i]) : is_within(columns[i].path, name);
    if (is_meant) found.push_back(i);
  }
  return found;
}

std::vector<std::size_t> selected_columns(const std::vector<Column>& columns,
                                          const std::vector<std::string>& names,
                                          const std::string& where) {
  std::vector<std::size_t> selected;
  std::vector<std::string> candidates;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (names.empty()) selected.push_back(i);
    candidates.push_back(columns[i].name());
  }
  for (const std::string& name : names) {
    const std::vector<std::size_t> found = columns_named(name, columns);
    if (found.empty()) {
      throw base::key_not_found(where)
          .problem("no column ", base::quote(name))
          .remedy(base::did_you_mean(name, candidates));
    }
    for (const std::size_t i : found) {
      if (std::ranges::find(selected, i) == selected.end()) selected.push_back(i);
    }
  }
  return selected;
}

}  // namespace tenfold
