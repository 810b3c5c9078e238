#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/schema.hpp>

#include "base/text.hpp"
#include "dataset/table.hpp"

namespace tenfold {

std::string_view Column::dtype_name() const noexcept {
  switch (kind) {
    case ColumnKind::string:
      return "string";
    case ColumnKind::bytes:
      return "bytes";
    case ColumnKind::number:
      break;
  }
  return tenfold::name(dtype);
}

Schema::Schema(std::vector<Column> columns) : columns_(std::move(columns)) {
  std::set<KeyPath> seen;
  for (const Column& column : columns_) {
    if (seen.insert(column.path).second) continue;
    throw Error(ErrorCode::invalid_argument,
                "schema: column " + base::quote(column.name()) +
                    ": the name comes twice: expected one column of a name, found two");
  }
  for (const Column& column : columns_) {
    KeyPath record = column.path;
    for (record.pop_back(); !record.empty(); record.pop_back()) {
      if (!seen.contains(record)) continue;
      throw Error(ErrorCode::invalid_argument,
                  "schema: column " + base::quote(dotted(record)) +
                      ": expected a column or a record of this name, found both: " +
                      base::quote(column.name()) + " lies in the record");
    }
  }
}

const Column* Schema::find(const KeyPath& path) const noexcept {
  for (const Column& column : columns_) {
    if (column.path == path) return &column;
  }
  if (path.size() != 1) return nullptr;
  for (const Column& column : columns_) {
    if (column.path.size() > 1 && column.name() == path[0]) return &column;
  }
  return nullptr;
}

void name_leaves(Column& column) {
  const std::string name = column.name();
  column.leaf = {name};
  column.end_leaf = column.has_ends() ? KeyPath{name + ".end"} : KeyPath{};
  column.item_end_leaf =
      column.ragged && column.is_text() ? KeyPath{name + ".item_end"} : KeyPath{};
  column.valid_leaf = column.nullable ? KeyPath{name + ".valid"} : KeyPath{};
}

namespace {

/// Every tensor of a tree of tensors becomes a column.
void columns_of(const TensorDict& node, KeyPath& path, std::vector<Column>& columns) {
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    path.push_back(key);
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      if (!leaf->is_unbatched()) {
        Column column;
        column.path = path;
        column.dtype = leaf->dtype();
        column.leaf = path;
        if (leaf->is_nested()) {
          throw Error(ErrorCode::invalid_argument,
                      "data set: entry " + base::quote(dotted(path)) +
                          ": a nested tensor is no column: expected a dense one, found one of " +
                          std::to_string(leaf->shape().empty() ? 0 : leaf->shape()[0]) +
                          " components; ingest it as a ragged column");
        }
        if (!leaf->shape().empty()) {
          column.shape.assign(leaf->shape().begin() + 1, leaf->shape().end());
        }
        columns.push_back(std::move(column));
      }
    } else if (const auto* child = std::get_if<TensorDict>(&item)) {
      columns_of(*child, path, columns);
    }
    path.pop_back();
  });
}

}  // namespace

Schema Schema::of(const TensorDict& tree) {
  Schema schema;
  if (tree.info().schema) {
    schema = from_value(*tree.info().schema, tree.where());
  } else {
    KeyPath path;
    columns_of(tree, path, schema.columns_);
  }
  check_table(tree, schema);
  return schema;
}

}  // namespace tenfold
