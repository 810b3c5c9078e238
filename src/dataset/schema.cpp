#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/schema.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/value/value_json.hpp"
#include "core/value/value_reader.hpp"
#include "dataset/leaf_names.hpp"
#include "dataset/table.hpp"

namespace tenfold {
namespace {

/// Maximum nesting of records, which limits the recursion.
constexpr std::size_t kMaxRecords = 64;

}  // namespace

std::string Column::dtype_name() const {
  switch (kind) {
    case ColumnKind::string:
      return "string";
    case ColumnKind::bytes:
      return "bytes";
    case ColumnKind::number:
      break;
  }
  return to_string(dtype);
}

Schema::Schema(std::vector<Column> columns) : columns_(std::move(columns)) {
  std::set<KeyPath> seen;
  for (Column& column : columns_) {
    if (column.path.empty()) {
      throw base::invalid_argument()
          .part("schema: column")
          .expected("a path")
          .found("an empty one");
    }
    if (column.path.size() > kMaxRecords + 1) {
      throw base::invalid_argument()
          .part("schema: column ", base::quote(column.name()))
          .expected("at most ", kMaxRecords, " nested records")
          .found(column.path.size() - 1);
    }
    if (std::ranges::any_of(column.shape, [](std::int64_t length) { return length < 0; })) {
      throw base::invalid_argument()
          .part("schema: column ", base::quote(column.name()), ": shape")
          .expected("lengths of 0 or more")
          .found(base::list_text(column.shape));
    }
    if (column.is_text()) {
      column.dtype = DType::uint8;
      if (!column.shape.empty()) {
        throw base::invalid_argument()
            .part("schema: column ", base::quote(column.name()))
            .expected("no shape for strings and bytes")
            .found(base::list_text(column.shape));
      }
    }
    if (seen.insert(column.path).second) continue;
    throw base::invalid_argument()
        .part("schema: column ", base::quote(column.name()))
        .problem("the name is duplicated")
        .expected("one column with this path")
        .found("two");
  }
  for (const Column& column : columns_) {
    KeyPath record = column.path;
    for (record.pop_back(); !record.empty(); record.pop_back()) {
      if (!seen.contains(record)) continue;
      throw base::invalid_argument()
          .part("schema: column ", base::quote(dotted(record)))
          .expected("a column or a record of this name")
          .found("both: ", base::quote(column.name()), " is in the record");
    }
  }
}

const Column* Schema::find(const KeyPath& path) const {
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
  column.valid_leaf = column.nullable ? KeyPath{name + std::string(kValiditySuffix)} : KeyPath{};
}

namespace {

/// Appends a column to `columns` for each batched tensor of `node`, which is at `path` in the tree.
/// `subject`: the name of the tree in messages.
void columns_of(const TensorDict& node, const base::Where& subject, KeyPath& path,
                std::vector<Column>& columns) {
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    path.push_back(key);
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      if (!leaf->is_unbatched()) {
        if (path.size() > kMaxRecords + 1) {
          throw base::invalid_argument(subject)
              .part("entry ", base::quote(dotted(path)))
              .expected("at most ", kMaxRecords, " nested records")
              .found(path.size() - 1);
        }
        Column column;
        column.path = path;
        column.dtype = leaf->dtype();
        column.leaf = path;
        if (leaf->is_nested()) {
          throw base::invalid_argument(subject)
              .part("entry ", base::quote(dotted(path)))
              .problem("a nested tensor cannot be a column")
              .expected("a dense tensor")
              .found("a nested one of ", leaf->shape().empty() ? 0 : leaf->shape()[0],
                     " components")
              .remedy("ingest it as a ragged column");
        }
        if (!leaf->shape().empty()) {
          column.shape.assign(leaf->shape().begin() + 1, leaf->shape().end());
        }
        columns.push_back(std::move(column));
      }
    } else if (const auto* child = std::get_if<TensorDict>(&item)) {
      if (child->kind() == NodeKind::sparse) {
        const std::string& layout = child->info().layout;
        throw base::invalid_argument(subject)
            .part("entry ", base::quote(dotted(path)))
            .problem("a sparse or jagged tensor cannot be a column")
            .expected("a dense tensor")
            .found("a tensor of layout ", base::quote(layout))
            .remedy(layout == "jagged" ? "ingest it as a ragged column"
                                       : "to_dense() makes a dense one");
      }
      columns_of(*child, subject, path, columns);
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
    columns_of(tree, subject_of(tree), path, schema.columns_);
  }
  check_table(tree, schema);
  return schema;
}

namespace {

/// The name in messages for a schema that is not part of a file.
constexpr const char* kAlone = "schema";

Value value_of(const KeyPath& path) {
  if (path.size() == 1) return path[0];
  Value::List list;
  for (const std::string& key : path) list.items.emplace_back(key);
  return list;
}

Value value_of(const Column& column) {
  Value::Object object;
  const auto add = [&](const char* key, Value value) {
    object.members.emplace_back(key, std::move(value));
  };
  add("dtype", Value(column.dtype_name()));
  if (!column.shape.empty()) {
    Value::List shape;
    for (const std::int64_t length : column.shape) shape.items.emplace_back(length);
    add("shape", std::move(shape));
  }
  if (column.ragged) add("ragged", true);
  if (column.nullable) add("nullable", true);
  if (!column.unit.empty()) add("unit", column.unit);
  Column usual = column;
  name_leaves(usual);
  const auto place = [&](const char* key, const KeyPath& path, const KeyPath& expected) {
    if (!path.empty() && path != expected) add(key, value_of(path));
  };
  place("leaf", column.leaf, usual.leaf);
  place("end_leaf", column.end_leaf, usual.end_leaf);
  place("item_end_leaf", column.item_end_leaf, usual.item_end_leaf);
  place("valid_leaf", column.valid_leaf, usual.valid_leaf);
  return object;
}

/// The columns of the record that contains the column at `path`; creates missing records. `root`:
/// the record at the first `depth` keys of `path`.
Value::Object& record_at(Value::Object& root, const KeyPath& path, std::size_t depth) {
  auto found = std::find_if(root.members.begin(), root.members.end(),
                            [](const auto& member) { return member.first == "columns"; });
  if (found == root.members.end()) {
    root.members.emplace_back("columns", Value::Object());
    found = std::prev(root.members.end());
  }
  auto& columns = std::get<Value::Object>(found->second.data());
  if (depth + 1 == path.size()) return columns;
  auto child = std::find_if(columns.members.begin(), columns.members.end(),
                            [&](const auto& member) { return member.first == path[depth]; });
  if (child == columns.members.end()) {
    columns.members.emplace_back(path[depth], Value::Object());
    child = std::prev(columns.members.end());
  }
  return record_at(std::get<Value::Object>(child->second.data()), path, depth + 1);
}

class SchemaReader {
 public:
  explicit SchemaReader(std::string_view where)
      : where_(where == kAlone ? "" : std::string(where), kAlone) {}

  std::vector<Column> run(const Value& document) {
    KeyPath path;
    record(ValueReader(document, where_), path);
    return std::move(columns_);
  }

 private:
  void record(const ValueReader& reader, KeyPath& path) {
    const auto members = reader.at("columns").members();
    if (path.size() > kMaxRecords) {
      throw reader.error()
          .expected("at most ", kMaxRecords, " nested records")
          .found("deeper nesting");
    }
    for (const auto& [key, member] : members) {
      path.emplace_back(key);
      const base::Where place = where_.at("column " + base::quote(dotted(path)));
      const ValueReader child(member.value(), place);
      if (child.find("columns")) {
        record(child, path);
      } else {
        columns_.push_back(column(child, path));
      }
      path.pop_back();
    }
  }

  static Column column(const ValueReader& reader, const KeyPath& path) {
    Column made;
    made.path = path;
    read_dtype(reader.at("dtype"), made);
    if (const auto shape = reader.find("shape")) made.shape = shape->lengths();
    if (const auto ragged = reader.find("ragged")) made.ragged = ragged->flag();
    if (const auto nullable = reader.find("nullable")) made.nullable = nullable->flag();
    if (made.is_text() && !made.shape.empty()) {
      throw reader.at("shape")
          .error()
          .expected("no shape for strings and bytes")
          .found(base::list_text(made.shape));
    }
    if (const auto unit = reader.find("unit")) made.unit = unit->text();
    name_leaves(made);
    const auto place = [&](const char* key, KeyPath& into) {
      if (const auto found = reader.find(key)) into = path_from(*found);
    };
    place("leaf", made.leaf);
    if (made.has_ends()) place("end_leaf", made.end_leaf);
    if (made.ragged && made.is_text()) place("item_end_leaf", made.item_end_leaf);
    if (made.nullable) place("valid_leaf", made.valid_leaf);
    return made;
  }

  static void read_dtype(const ValueReader& reader, Column& into) {
    const std::string& text = reader.text();
    if (text == "string" || text == "bytes") {
      into.kind = text == "string" ? ColumnKind::string : ColumnKind::bytes;
      into.dtype = DType::uint8;
      return;
    }
    const auto dtype = dtype_from_name(text);
    if (!dtype) reader.fail("a dtype of torch, \"string\" or \"bytes\"");
    into.dtype = *dtype;
  }

  static KeyPath path_from(const ValueReader& reader) {
    if (const auto* text = reader.value().get_if<std::string>()) return {*text};
    KeyPath made;
    if (const auto* list = reader.value().get_if<Value::List>()) {
      for (const Value& item : list->items) {
        const auto* text = item.get_if<std::string>();
        if (text == nullptr) reader.fail("a key or a list of keys");
        made.push_back(*text);
      }
    }
    if (made.empty()) reader.fail("a key or a list of keys");
    return made;
  }

  base::Where where_;
  std::vector<Column> columns_;
};

}  // namespace

Value Schema::to_value() const {
  Value::Object root;
  root.members.emplace_back("columns", Value::Object());
  for (const Column& column : columns_) {
    record_at(root, column.path, 0).members.emplace_back(column.path.back(), value_of(column));
  }
  return root;
}

std::string Schema::to_json() const { return tenfold::to_json(to_value()); }

Schema Schema::from_value(const Value& value, std::string_view where) {
  return Schema(SchemaReader(where).run(value));
}

Schema Schema::from_json(std::string_view text, std::string_view where) {
  const bool is_alone = where.empty() || where == kAlone;
  return from_value(parse_value(text, is_alone ? base::Where("", kAlone) : where), where);
}

}  // namespace tenfold
