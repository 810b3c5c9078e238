#include "ingest/source_report.hpp"

#include <algorithm>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "base/text.hpp"

namespace tenfold {

OnError on_error_from(std::string_view name) {
  if (name == "raise") return OnError::raise;
  if (name == "skip") return OnError::skip;
  if (name == "collect") return OnError::collect;
  throw Error(ErrorCode::invalid_argument,
              "on_error: expected \"raise\", \"skip\" or \"collect\", found " + base::quote(name));
}

std::string bad_row_json(std::int64_t row, std::string_view column, std::string_view error,
                         std::string_view text) {
  Value::Object object;
  object.members.emplace_back("line", Value());
  object.members.emplace_back("row", row);
  object.members.emplace_back("column", column.empty() ? Value() : Value(column));
  object.members.emplace_back("error", Value(error));
  object.members.emplace_back("text", Value(text));
  return to_json(object) + "\n";
}

std::vector<bool> selected_columns(const std::vector<Column>& columns,
                                   const std::vector<std::string>& names,
                                   const std::string& where) {
  if (names.empty()) return std::vector<bool>(columns.size(), true);
  std::vector<bool> selected(columns.size(), false);
  for (const std::string& name : names) {
    bool found = false;
    const bool is_flat = std::any_of(columns.begin(), columns.end(), [&](const Column& column) {
      return column.path == KeyPath{name};
    });
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::string full = columns[i].name();
      const bool wanted =
          is_flat ? columns[i].path == KeyPath{name} : full == name || full.starts_with(name + ".");
      if (!wanted) continue;
      selected[i] = found = true;
    }
    if (found) continue;
    std::vector<std::string> candidates;
    for (const Column& column : columns) candidates.push_back(column.name());
    const std::vector<std::string> near = base::near_matches(name, candidates);
    std::string remedy;
    for (const std::string& candidate : near) {
      remedy += (remedy.empty() ? "; did you mean " : ", ") + base::quote(candidate);
    }
    throw Error(ErrorCode::key_not_found, where + ": no column " + base::quote(name) + remedy);
  }
  return selected;
}

}  // namespace tenfold
