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
  const std::string full = dotted(column);
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return full == name || full.starts_with(name + ".");
  });
  return static_cast<std::size_t>(found - names.begin());
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
  for (std::size_t n = 0; n < names.size(); ++n) {
    // A flat column with the name "a.b" takes precedence over column b of record a.
    const bool is_flat = std::any_of(columns.begin(), columns.end(), [&](const Column& column) {
      return column.path == KeyPath{names[n]};
    });
    bool is_known = false;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const bool is_meant = position_of(columns[i].path, {names[n]}) == 0 &&
                            (!is_flat || columns[i].path == KeyPath{names[n]});
      is_known |= is_meant;
      const bool is_new = std::find(selected.begin(), selected.end(), i) == selected.end();
      if (is_meant && is_new) selected.push_back(i);
    }
    if (is_known) continue;
    throw base::key_not_found(where)
        .problem("no column ", base::quote(names[n]))
        .remedy(base::did_you_mean(names[n], candidates));
  }
  return selected;
}

}  // namespace tenfold
