#include "ingest/text/value_types.hpp"

#include <string>
#include <utility>

#include "dataset/leaf_names.hpp"
#include "ingest/text/csv_rows.hpp"
#include "ingest/text/json_text.hpp"

namespace tenfold {
namespace {

using namespace scalar_kind;

/// The target for values of this type. Target::is_typed is false if there are only nulls, empty
/// lists and lists of nulls.
Target target_of(const RowType& type, std::int64_t length) {
  Target target;
  target.column = column_of(type, length);
  target.is_typed = type.has_elements;
  target.takes_bools = (type.kinds & kBool) != 0;
  if (type.form == RowForm::json) {
    target.form = Form::json;
  } else if (type.form == RowForm::list) {
    target.form = target.column.is_text() ? Form::text_list : Form::list;
  } else {
    target.form = target.column.is_text() ? Form::text : Form::scalar;
  }
  return target;
}

class Planner {
 public:
  Planner(RowPlan& plan, std::vector<Promotion>& promotions)
      : plan_(plan), promotions_(promotions) {}

  void record(const ValueTypes& types, std::uint64_t num_records, bool nullable) {
    for (const auto& [name, member] : types.members) {
      path_.push_back(name);
      const bool may_miss = nullable || member.has_null || member.num_present < num_records;
      if (member.kind == ValueTypes::Kind::object && member.members.empty()) {
        plan_.empty_records.push_back(path_);
      } else if (member.kind == ValueTypes::Kind::object) {
        record(member, member.num_objects, may_miss);
      } else {
        add(member, may_miss);
      }
      path_.pop_back();
    }
  }

 private:
  void add(const ValueTypes& types, bool nullable) {
    const bool is_list = types.kind == ValueTypes::Kind::list;
    const RowType type = settled(is_list ? types.lists.type() : RowType::of_kinds(types.scalars));
    const RowType first =
        settled(is_list ? types.first_list->type() : RowType::of_kinds(types.first_scalar));
    Target target = target_of(type, is_list ? types.lists.length() : 0);
    target.column.path = path_;
    target.column.nullable = nullable || types.kind == ValueTypes::Kind::none;
    name_leaves(target.column);
    auto promotion =
        promotion_of(target.column.name(), first.has_elements ? first.text() : "", type);
    if (promotion) promotions_.push_back(std::move(*promotion));
    plan_.targets.push_back(std::move(target));
  }

  RowPlan& plan_;
  std::vector<Promotion>& promotions_;
  KeyPath path_;
};

/// Infers types from JSON records. Ignores records that are not valid JSON objects.
class JsonTypes {
 public:
  /// `types` must outlive this object.
  explicit JsonTypes(ValueTypes& types) : types_(types) {}

  /// Adds the types of one record, the text in [begin, end). JsonText states which bytes must
  /// follow the text. If `lines` is true, a line feed ends the record.
  void add(const char* begin, const char* end, bool lines);

 private:
  void object(ValueTypes& types);
  void value(ValueTypes& types);
  void list(ListTypes& types, std::size_t depth);
  ScalarKinds scalar();

  ValueTypes& types_;
  JsonText text_{nullptr, nullptr, true};
  std::string scratch_;
};

void JsonTypes::add(const char* begin, const char* end, bool lines) {
  text_.restart(begin, end, lines);
  text_.skip_blanks();
  const char* const start = text_.at();
  if (*start != '{' || !text_.skip_value()) return;
  text_.skip_blanks();
  if (!text_.at_end()) return;
  // The record is valid JSON, so the code below needs no checks.
  text_.move_to(start);
  object(types_);
}

void JsonTypes::object(ValueTypes& types) {
  ++types.num_objects;
  text_.move_to(text_.at() + 1);
  if (text_.take('}')) return;
  // Names usually come in the same order as in the previous record.
  std::size_t next = 0;
  do {
    text_.skip_blanks();
    std::string_view key;
    text_.take_string(key, scratch_);
    const bool expected = next < types.members.size() && types.members[next].name == key;
    ValueTypes& member = expected ? types.members[next].types : types.member(key);
    next = expected ? next + 1 : types.by_name.find(key)->second + 1;
    text_.take(':');
    text_.skip_blanks();
    value(member);
  } while (text_.take(','));
  text_.take('}');
}

void JsonTypes::value(ValueTypes& types) {
  using Kind = ValueTypes::Kind;
  const char first = text_.peek();
  if (first == '{') {
    ++types.num_present;
    if (types.kind == Kind::none) types.kind = Kind::object;
    object(types);  // add the members even if the first value was of another kind, because earlier
                    // blocks may have had objects
  } else if (first == '[') {
    ++types.num_present;
    if (types.kind == Kind::none) types.kind = Kind::list;
    if (types.kind == Kind::list && !types.first_list) {
      types.first_list.emplace();
      list(*types.first_list, 1);
      types.lists.merge(*types.first_list);
    } else {
      list(types.lists, 1);
    }
  } else {
    const ScalarKinds kinds = scalar();
    if (kinds == kNull) {
      types.add_null();
    } else {
      types.add_scalar(kinds);
    }
  }
}

void JsonTypes::list(ListTypes& types, std::size_t depth) {
  text_.move_to(text_.at() + 1);
  std::int64_t length = 0;
  if (!text_.take(']')) {
    do {
      text_.skip_blanks();
      ++length;
      if (text_.peek() == '[') {
        list(types, depth + 1);
      } else if (text_.peek() == '{') {
        types.add_object();
        text_.skip_value();
      } else {
        types.add_items(depth, scalar());
      }
    } while (text_.take(','));
    text_.take(']');
  }
  types.add_list(depth - 1, length);
}

ScalarKinds JsonTypes::scalar() {
  NumberText number;
  if (scan_number(text_.at(), NumberStyle::json, number)) {
    text_.move_to(number.end);
    return kinds_of(number);
  }
  const char first = text_.peek();
  text_.skip_value();
  switch (first) {
    case '"':
      return kString;
    case 't':
    case 'f':
      return kBool;
    case 'n':
      return kNull;
    default:
      return kFloat;  // NaN, Infinity
  }
}

}  // namespace

ValueTypes& ValueTypes::member(std::string_view name) {
  const auto [found, is_new] = by_name.try_emplace(std::string(name), members.size());
  if (is_new) members.push_back({std::string(name), ValueTypes()});
  return members[found->second].types;
}

void ValueTypes::add_null() {
  ++num_present;
  has_null = true;
}

void ValueTypes::add_scalar(ScalarKinds kinds) {
  ++num_present;
  if (kind == Kind::none) kind = Kind::scalar;
  if (first_scalar == 0) first_scalar = kinds;
  scalars |= kinds;
}

void ValueTypes::merge(const ValueTypes& later) {
  num_present += later.num_present;
  num_objects += later.num_objects;
  has_null |= later.has_null;
  if (kind == Kind::none) kind = later.kind;
  if (first_scalar == 0) first_scalar = later.first_scalar;
  scalars |= later.scalars;
  if (!first_list) first_list = later.first_list;
  lists.merge(later.lists);
  for (const auto& [name, types] : later.members) member(name).merge(types);
}

ValueTypes types_in(const Block& block) {
  ValueTypes types;
  RecordCursor cursor(block);
  Record record;
  if (block.file->kind == TextKind::csv) {
    CsvTypes csv(types);
    csv.begin_file(*block.file);
    while (cursor.next(record)) csv.add(record.begin, record.end);
  } else {
    JsonTypes json(types);
    const bool lines = block.file->kind == TextKind::json_lines;
    while (cursor.next(record)) json.add(record.begin, record.end, lines);
  }
  return types;
}

RowPlan plan_of(const ValueTypes& rows, std::vector<Promotion>& promotions) {
  RowPlan plan;
  promotions.clear();
  Planner(plan, promotions).record(rows, rows.num_objects, false);
  index_fields(plan);
  return plan;
}

}  // namespace tenfold
