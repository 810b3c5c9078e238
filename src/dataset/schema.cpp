#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/schema.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/value/value_json.hpp"
#include "dataset/leaf_names.hpp"
#include "dataset/table.hpp"

namespace tenfold {

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
  for (const Column& column : columns_) {
    if (seen.insert(column.path).second) continue;
    throw base::invalid_argument()
        .part("schema: column ", base::quote(column.name()))
        .problem("the name is duplicated")
        .expected("one column of a name")
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

/// Makes each batched tensor of a tree a column.
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
          throw base::invalid_argument()
              .part("data set: entry ", base::quote(dotted(path)))
              .problem("a nested tensor is not a column")
              .expected("a dense one")
              .found("one of ", leaf->shape().empty() ? 0 : leaf->shape()[0], " components")
              .remedy("ingest it as a ragged column");
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

namespace {

/// Maximum nesting of records, which limits the recursion.
constexpr std::size_t kMaxRecords = 64;

/// The name, in messages, of a schema that is not part of a file.
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

/// The columns of the record that contains the column at `path`; creates missing records. `root` is
/// the record of the first `depth` keys.
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
    record(document, path);
    return std::move(columns_);
  }

 private:
  Error fail(const KeyPath& path, const std::string& part) const {
    base::Where place = where_;
    if (!path.empty()) place = place.at("column " + base::quote(dotted(path)));
    if (!part.empty()) place = place.at("member " + base::quote(part));
    return base::corrupt(place);
  }
  [[noreturn]] void expected(const KeyPath& path, const std::string& part, const char* what,
                             const Value& found) const {
    throw fail(path, part).expected(what).found(to_json(found));
  }

  void record(const Value& value, KeyPath& path) {
    const auto* object = value.get_if<Value::Object>();
    const Value* members = object == nullptr ? nullptr : object->find("columns");
    const auto* columns = members == nullptr ? nullptr : members->get_if<Value::Object>();
    if (columns == nullptr) {
      throw fail(path, "").expected("an object with \"columns\"").found(value.type_name());
    }
    if (path.size() > kMaxRecords) {
      throw fail(path, "")
          .expected("at most ", kMaxRecords, " nested records")
          .found("deeper nesting");
    }
    for (const auto& [key, member] : columns->members) {
      path.push_back(key);
      const auto* child = member.get_if<Value::Object>();
      if (child == nullptr) expected(path, "", "an object", member);
      if (child->find("columns") != nullptr) {
        record(member, path);
      } else {
        columns_.push_back(column(*child, path));
      }
      path.pop_back();
    }
  }

  Column column(const Value::Object& object, const KeyPath& path) const {
    Column made;
    made.path = path;
    const Value* dtype = object.find("dtype");
    if (dtype == nullptr) throw fail(path, "dtype").expected("a dtype").found("none");
    read_dtype(*dtype, made);
    if (const Value* shape = object.find("shape")) made.shape = read_shape(*shape, path);
    made.ragged = read_flag(object, path, "ragged");
    made.nullable = read_flag(object, path, "nullable");
    if (made.is_text() && !made.shape.empty()) {
      throw fail(path, "shape")
          .expected("no shape for strings and bytes")
          .found(base::list_text(made.shape));
    }
    if (const Value* unit = object.find("unit")) {
      const auto* text = unit->get_if<std::string>();
      if (text == nullptr) expected(path, "unit", "a str", *unit);
      made.unit = *text;
    }
    name_leaves(made);
    const auto place = [&](const char* key, KeyPath& into) {
      if (const Value* value = object.find(key)) into = read_path(*value, path, key);
    };
    place("leaf", made.leaf);
    if (made.has_ends()) place("end_leaf", made.end_leaf);
    if (made.ragged && made.is_text()) place("item_end_leaf", made.item_end_leaf);
    if (made.nullable) place("valid_leaf", made.valid_leaf);
    return made;
  }

  void read_dtype(const Value& value, Column& into) const {
    const auto* text = value.get_if<std::string>();
    if (text == nullptr) expected(into.path, "dtype", "a str", value);
    if (*text == "string" || *text == "bytes") {
      into.kind = *text == "string" ? ColumnKind::string : ColumnKind::bytes;
      into.dtype = DType::uint8;
      return;
    }
    const auto dtype = dtype_from_name(*text);
    if (!dtype) {
      throw fail(into.path, "dtype")
          .expected("a dtype of torch, \"string\" or \"bytes\"")
          .found(base::quote(*text));
    }
    into.dtype = *dtype;
  }

  Shape read_shape(const Value& value, const KeyPath& path) const {
    const auto* list = value.get_if<Value::List>();
    if (list == nullptr) expected(path, "shape", "a list of int", value);
    Shape shape;
    for (const Value& item : list->items) {
      const auto* length = item.get_if<std::int64_t>();
      if (length == nullptr || *length < 0) expected(path, "shape", "lengths of 0 or more", value);
      shape.push_back(*length);
    }
    return shape;
  }

  bool read_flag(const Value::Object& object, const KeyPath& path, const char* key) const {
    const Value* value = object.find(key);
    if (value == nullptr) return false;
    const auto* flag = value->get_if<bool>();
    if (flag == nullptr) expected(path, key, "true or false", *value);
    return *flag;
  }

  KeyPath read_path(const Value& value, const KeyPath& path, const char* key) const {
    if (const auto* text = value.get_if<std::string>()) return {*text};
    KeyPath made;
    if (const auto* list = value.get_if<Value::List>()) {
      for (const Value& item : list->items) {
        const auto* text = item.get_if<std::string>();
        if (text == nullptr) expected(path, key, "a key or a list of keys", value);
        made.push_back(*text);
      }
    }
    if (made.empty()) expected(path, key, "a key or a list of keys", value);
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
