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

std::size_t position_of(const KeyPath& column, const std::vector<std::string>& names) {
  std::vector<std::string> enclosing;
  for (KeyPath path = column; !path.empty(); path.pop_back()) enclosing.push_back(dotted(path));
  const auto found = std::ranges::find_first_of(names, enclosing);
  return static_cast<std::size_t>(found - names.begin());
}

ColumnsByName::ColumnsByName(const std::vector<Column>& columns) {
  for (std::size_t i = 0; i < columns.size(); ++i) {
    KeyPath path = columns[i].path;
    if (path.size() == 1) flat_[path[0]].push_back(i);
    for (; !path.empty(); path.pop_back()) all_[dotted(path)].push_back(i);
  }
}

const std::vector<std::size_t>& ColumnsByName::at(const std::string& name) const {
  static const std::vector<std::size_t> none;
  if (const auto found = flat_.find(name); found != flat_.end()) return found->second;
  const auto found = all_.find(name);
  return found == all_.end() ? none : found->second;
}

std::vector<std::size_t> known_columns(const std::vector<Column>& columns,
                                       const std::vector<std::string>& names) {
  std::vector<std::size_t> known;
  for (std::size_t i = 0; names.empty() && i < columns.size(); ++i) known.push_back(i);
  if (names.empty()) return known;
  const ColumnsByName by_name(columns);
  std::vector<bool> is_known(columns.size());
  for (const std::string& name : names) {
    for (const std::size_t i : by_name.at(name)) {
      if (!is_known[i]) known.push_back(i);
      is_known[i] = true;
    }
  }
  return known;
}

std::vector<std::size_t> selected_columns(const std::vector<Column>& columns,
                                          const std::vector<std::string>& names,
                                          const std::string& where) {
  const ColumnsByName by_name(columns);
  for (const std::string& name : names) {
    if (!by_name.at(name).empty()) continue;
    std::vector<std::string> candidates;
    for (const Column& column : columns) candidates.push_back(column.name());
    throw base::key_not_found(where)
        .problem("no column ", base::quote(name))
        .remedy(base::did_you_mean(name, candidates));
  }
  return known_columns(columns, names);
}

}  // namespace tenfold
