#include "ingest/text/type_work.hpp"

namespace tenfold {

using namespace scalar_kind;

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

void TypeWork::begin(const Block& block) {
  block_ = &block;
  types_ = ValueTypes();
}

bool TypeWork::work() {
  RecordCursor cursor(*block_);
  Record record;
  if (block_->file->kind == TextKind::csv) {
    CsvTypes types(types_);
    types.begin_file(*block_->file);
    while (cursor.next(record)) types.add(record.begin, record.end);
  } else {
    JsonTypes types(types_);
    const bool lines = block_->file->kind == TextKind::json_lines;
    while (cursor.next(record)) types.add(record.begin, record.end, lines);
  }
  return false;
}

bool TypeWork::deliver() {
  all_.merge(types_);
  return true;
}

}  // namespace tenfold
