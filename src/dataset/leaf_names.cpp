#include "dataset/leaf_names.hpp"

#include <map>
#include <set>
#include <string>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "formats/folder/meta/meta.hpp"

namespace tenfold {
namespace {

class LeafNames {
 public:
  explicit LeafNames(const std::vector<Column>& columns) {
    for (const Column& column : columns) columns_.insert(column.name());
  }

  /// Makes the name of a leaf unique. `is_column`: the leaf has the values of a column, and keeps
  /// the column's name if possible, for readers that do not know the schema.
  void claim(KeyPath& leaf, bool is_column) {
    if (leaf.empty()) return;
    const std::string wanted = leaf.back();
    for (int number = 0;; ++number) {
      leaf = {number == 0 ? wanted : wanted + "." + std::to_string(number)};
      if (detail::formats::folder::is_reserved_key(leaf[0])) continue;
      if ((!is_column || number > 0) && columns_.contains(leaf[0])) continue;
      if (taken_.insert(leaf[0]).second) return;
    }
  }

 private:
  std::set<std::string> columns_;
  std::set<std::string> taken_;
};

}  // namespace

void name_leaves(std::vector<Column>& columns) {
  LeafNames names(columns);
  for (Column& column : columns) {
    name_leaves(column);
    names.claim(column.leaf, true);
  }
  for (Column& column : columns) {
    names.claim(column.end_leaf, false);
    names.claim(column.item_end_leaf, false);
    names.claim(column.valid_leaf, false);
  }
}

std::set<std::string> names_of(const std::vector<Column>& columns) {
  std::set<std::string> names;
  for (const Column& column : columns) {
    for (KeyPath path = column.path; !path.empty(); path.pop_back()) names.insert(dotted(path));
  }
  return names;
}

void refuse_ambiguous_names(const std::vector<Column>& columns, const Path& where) {
  std::map<std::string, KeyPath> paths;  // by dotted name
  for (const Column& column : columns) {
    for (KeyPath path = column.path; !path.empty(); path.pop_back()) {
      const auto [named, is_new] = paths.emplace(dotted(path), path);
      if (is_new || named->second == path) continue;
      throw base::invalid_argument(where)
          .part("column ", base::quote(named->first))
          .expected("one column or record of this dotted name")
          .found("two: the keys are joined by dots")
          .remedy("rename one of them");
    }
  }
  std::set<std::string> names = names_of(columns);
  for (const Column& column : columns) {
    const bool has_bools = column.dtype == DType::bool_ && column.shape.empty() && !column.ragged;
    if (has_bools && !column.nullable) names.erase(column.name());
  }
  for (const Column& column : columns) {
    const std::string validity = column.name().append(kValiditySuffix);
    if (!column.nullable || !names.contains(validity)) continue;
    throw base::invalid_argument(where)
        .part("column ", base::quote(column.name()))
        .problem("the validity of its rows is named ", base::quote(validity))
        .expected("no other column of that name")
        .found("one")
        .remedy("rename ", base::quote(column.name()), " or ", base::quote(validity));
  }
}

}  // namespace tenfold
