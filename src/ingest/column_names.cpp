#include "ingest/column_names.hpp"

#include <set>
#include <string>

namespace tenfold {
namespace {

void claim(KeyPath& leaf, std::set<KeyPath>& taken) {
  if (leaf.empty()) return;
  const std::string wanted = leaf.back();
  for (int number = 2; !taken.insert(leaf).second; ++number) {
    leaf.back() = wanted + "~" + std::to_string(number);
  }
}

}  // namespace

void name_leaves(std::vector<Column>& columns) {
  std::set<KeyPath> taken;
  for (Column& column : columns) {
    name_leaves(column);
    claim(column.leaf, taken);
  }
  // Who looks at the folder without the schema looks for values first.
  for (Column& column : columns) {
    claim(column.end_leaf, taken);
    claim(column.item_end_leaf, taken);
    claim(column.valid_leaf, taken);
  }
}

}  // namespace tenfold
