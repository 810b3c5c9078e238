#include "ingest/text/json_rows.hpp"

#include <cstring>
#include <limits>
#include <utility>

#include "base/text.hpp"
#include "codecs/json/json.hpp"
#include "dataset/row_bytes.hpp"

namespace tenfold {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Maximum number of bytes of a value in a message.
constexpr std::size_t kShownJsonBytes = 40;
/// Maximum number of unknown names per record type (the root or a nested record) that are
/// remembered, to report them and to find duplicate keys.
constexpr std::size_t kMaxOthers = 10'000;

/// Nesting depth of lists in a row of the column.
std::size_t levels_of(const Column& column) {
  return column.shape.size() + (column.ragged ? 1 : 0);
}

/// A value as messages show it.
std::string shown(std::string_view value) {
  constexpr std::string_view kMore = "...";
  if (value.front() == '"') return base::quote(value.substr(1, value.size() - 2), kShownJsonBytes);
  if (value.size() <= kShownJsonBytes) return std::string(value);
  std::size_t size = kShownJsonBytes;
  while ((value[size] & 0xC0) == 0x80) --size;  // cut before the character that does not fit
  return std::string(value.substr(0, size)).append(kMore);
}

}  // namespace

JsonRows::JsonRows(const RowPlan& plan, RowBuilder& rows)
    : plan_(plan), rows_(rows), seen_(plan.num_fields, 0), others_(plan.num_fields) {}

Outcome JsonRows::add(const char* begin, const char* end, bool lines) {
  text_.restart(begin, end, lines);
  ++row_;
  fault_.outcome = Outcome::kept;
  text_.skip_blanks();
  bool kept = text_.peek() == '{'
                  ? object(plan_.root, 0)
                  : malformed(text_.at_end() ? "an object before and after ','" : "an object");
  if (kept) {
    text_.skip_blanks();
    if (!text_.at_end()) kept = malformed("the end of the record");
  }
  if (kept) {
    rows_.end_row();
  } else {
    rows_.undo_row();
  }
  return fault_.outcome;
}

void JsonRows::note_names(std::vector<bool>& seen, std::set<std::string>& ignored) {
  note_names(plan_.root, "", seen, ignored);
  has_new_columns_ = false;
}

void JsonRows::note_names(const Field& field, const std::string& prefix, std::vector<bool>& seen,
                          std::set<std::string>& ignored) const {
  if (has_new_columns_) {
    for (const auto& [name, row] : others_[field.number]) {
      if (ignored.size() < kMaxOthers) ignored.insert(prefix + name);
    }
  }
  for (const Field& child : field.fields) {
    if (child.target != Field::kRecord) {
      if (seen_[child.number] != 0) seen[child.target] = true;
    } else {
      note_names(child, has_new_columns_ ? prefix + child.name + "." : "", seen, ignored);
    }
  }
}

bool JsonRows::object(const Field& field, std::size_t depth) {
  if (depth > codecs::kMaxJsonDepth) return malformed("records nested less deeply");
  text_.move_to(text_.at() + 1);
  std::size_t next = 0;
  std::size_t num_seen = 0;
  if (!text_.take('}')) {
    do {
      text_.skip_blanks();
      const Field* const child = find(field, next);
      if (child == nullptr) {
        if (fault_.outcome != Outcome::kept) return false;
        continue;
      }
      std::uint64_t& mark = seen_[child->number];
      if (mark == row_)
        return mismatch(child->full_name, "the key is duplicated: expected it once",
                        Outcome::malformed);
      mark = row_;
      ++num_seen;
      if (!text_.take(':')) return malformed("':' after a key");
      text_.skip_blanks();
      if (!member(*child, depth)) return false;
    } while (text_.take(','));
    if (!text_.take('}')) return malformed("',' or '}'");
  }
  return num_seen == field.fields.size() || miss(field);
}

/// Consumes the next key if it is written exactly as `field.quoted`.
bool JsonRows::takes_key(const Field& field) {
  std::uint64_t head = 0;
  std::memcpy(&head, text_.at(), sizeof(head));
  if ((head & field.head_mask) != field.head) return false;
  const std::size_t size = field.quoted.size();
  if (size > sizeof(head)) return text_.take_word(field.quoted);
  text_.move_to(text_.at() + size);
  return true;
}

/// Fast path: consumes a float for a column of float64, or an integer of at most 18 digits for a
/// column of int64. Otherwise consumes nothing.
bool JsonRows::plain_number(TextColumn& column) {
  if (!column.is_float64() && !column.is_int64()) return false;
  NumberText number;
  if (!scan_number(text_.at(), NumberStyle::json, number)) return false;
  if (column.is_float64()) {
    if (number.is_integer) return false;
    const double value = to_double(number);
    std::memcpy(column.row_value(), &value, sizeof(value));
  } else {
    constexpr std::int32_t kDigits = 18;  // all integers with so many digits fit
    if (!number.is_integer || number.num_digits > kDigits) return false;
    const auto digits = static_cast<std::int64_t>(number.digits);
    const std::int64_t value = number.negative ? -digits : digits;
    std::memcpy(column.row_value(), &value, sizeof(value));
  }
  text_.move_to(number.end);
  return true;
}

/// Consumes the next key and returns its field. First tries the field at `next`, because keys
/// usually have the same order in all records. Returns null if the plan has no such field (then the
/// value is skipped), or if the record is rejected.
const Field* JsonRows::find(const Field& field, std::size_t& next) {
  if (next < field.fields.size()) {
    const Field& expected = field.fields[next];
    if (takes_key(expected)) {
      ++next;
      return &expected;
    }
  }
  if (text_.peek() != '"') {
    malformed("a key in quotes");
    return nullptr;
  }
  std::string_view key;
  if (!text_.take_string(key, scratch_)) {
    malformed(nullptr);
    return nullptr;
  }
  const auto found = field.by_name.find(key);
  if (found != field.by_name.end()) {
    next = found->second + 1;
    return &field.fields[found->second];
  }
  other_member(field, key);
  return nullptr;
}

/// The number of the last row that had the unknown name `key`; 0 if none is remembered.
std::uint64_t& JsonRows::mark_of_other(const Field& parent, std::string_view key) {
  TextMap<std::uint64_t>& names = others_[parent.number];
  const auto found = names.find(key);
  if (found != names.end()) return found->second;
  // The number of names is limited, because in some sources every record has new names.
  if (names.size() >= kMaxOthers) names.clear();
  has_new_columns_ = true;
  return names.emplace(std::string(key), 0).first->second;
}

/// Skips a member that is not in the plan. Rejects the record if the plan must be extended by the
/// member, or if the key is duplicated.
bool JsonRows::other_member(const Field& parent, std::string_view key) {
  // A final inferred plan lacks only names that occur in no valid JSON record. The invalid records
  // with these names are reported anyway.
  if (!plan_.ignores_new_columns && !plan_.is_final) {
    return mismatch(std::string(key), "a new column", Outcome::promote);
  }
  std::uint64_t& mark = mark_of_other(parent, key);
  if (mark == row_) {
    const std::string prefix = parent.full_name.empty() ? "" : parent.full_name + ".";
    return mismatch(prefix + std::string(key), "the key is duplicated: expected it once",
                    Outcome::malformed);
  }
  mark = row_;
  if (!text_.take(':')) return malformed("':' after a key");
  return text_.skip_value() || malformed(nullptr);
}

bool JsonRows::member(const Field& field, std::size_t depth) {
  if (field.target != Field::kRecord) {
    TextColumn& column = rows_.column(field.target);
    column.begin_value();
    if (!plain_number(column) && !value(column)) return false;
    column.end_value();
    return true;
  }
  if (text_.peek() == '{') return object(field, depth + 1);
  if (text_.take_word("null")) return allows_absence(field);
  return unexpected(field.full_name, "an object", text_.at());
}

/// Rejects the record if a field that requires a value is missing in the object.
bool JsonRows::miss(const Field& field) {
  for (const std::size_t number : field.required_fields) {
    const Field& child = field.fields[number];
    if (seen_[child.number] != row_) return allows_absence(child);
  }
  return true;
}

bool JsonRows::allows_absence(const Field& field) {
  if (field.required.empty()) return true;
  return mismatch(plan_.targets[field.required.front()].column.name(), kLacksColumn);
}

bool JsonRows::value(TextColumn& column) {
  if (text_.peek() == 'n' && text_.take_word("null")) {
    if (plan_.is_given && !column.target().column.nullable) {
      return mismatch(column.target().column.name(),
                      "expected a value, found null; make the column nullable in the schema");
    }
    column.set_null();
    return true;
  }
  if (!column.target().is_typed && column.target().form != Form::list) {
    return too_narrow(column, "null", text_.at());
  }
  switch (column.target().form) {
    case Form::scalar:
      return scalar(column);
    case Form::list:
      return list(column);
    case Form::text:
      return text(column);
    case Form::text_list:
      return text_list(column);
    case Form::json:
      return text_.peek() == '[' || text_.peek() == '{' ? raw(column) : wrong_kind(column);
  }
  return false;
}

bool JsonRows::scalar(TextColumn& column) {
  const char first = text_.peek();
  if (first == '[' || first == '{') return wrong_kind(column);
  return item(column, column.row_value());
}

/// Parses one number or bool, or rejects another value.
bool JsonRows::item(TextColumn& column, std::byte* into) {
  const char* const begin = text_.at();
  NumberText number;
  if (scan_number(begin, NumberStyle::json, number)) {
    text_.move_to(number.end);
    return put(column, put_number(number, column.dtype(), plan_.is_given, into), begin);
  }
  switch (*begin) {
    case 't':
      if (text_.take_word("true")) {
        return put(column, put_bool(true, column.target(), into), begin);
      }
      break;
    case 'f':
      if (text_.take_word("false")) {
        return put(column, put_bool(false, column.target(), into), begin);
      }
      break;
    case 'N':
      if (text_.take_word("NaN"))
        return put(column, put_special(kNaN, column.dtype(), into), begin);
      break;
    case 'I':
      if (text_.take_word("Infinity")) {
        return put(column, put_special(kInfinity, column.dtype(), into), begin);
      }
      break;
    case '-':
      if (text_.take_word("-Infinity")) {
        return put(column, put_special(-kInfinity, column.dtype(), into), begin);
      }
      break;
    default:
      break;
  }
  if (!text_.skip_value()) return malformed(nullptr);
  return put(column, Fit::wrong_type, begin);
}

bool JsonRows::put(TextColumn& column, Fit fit, const char* begin) {
  if (fit == Fit::fits) [[likely]]
    return true;
  const std::string dtype(to_string(column.dtype()));
  return too_narrow(column, fit == Fit::too_large ? "a number that fits " + dtype : dtype, begin);
}

bool JsonRows::list(TextColumn& column) {
  if (text_.peek() != '[') return wrong_kind(column);
  std::byte* into = column.target().column.ragged ? nullptr : column.row_value();
  return items(column, 0, into);
}

/// Parses a list at one nesting level of a row's value. `into`: write position in a row of fixed
/// shape; null for a ragged row, whose elements are appended.
bool JsonRows::items(TextColumn& column, std::size_t level, std::byte*& into) {
  const Column& stored = column.target().column;
  const char* const begin = text_.at();
  const bool is_free = stored.ragged && level == 0;
  const std::size_t inner = level - (stored.ragged && level > 0 ? 1 : 0);
  const std::int64_t expected =
      is_free ? std::numeric_limits<std::int64_t>::max() : stored.shape[inner];
  const bool is_last = level + 1 == levels_of(stored);
  const std::size_t size = column.item_bytes();
  text_.move_to(begin + 1);
  std::int64_t count = 0;
  if (!text_.take(']')) {
    if (!column.target().is_typed) {
      return too_narrow(column, "an empty list", begin);
    }
    do {
      text_.skip_blanks();
      if (++count > expected) break;
      if (!is_last) {
        if (text_.peek() != '[') return too_narrow(column, "a list", text_.at());
        if (!items(column, level + 1, into)) return false;
        continue;
      }
      std::byte* const place = into != nullptr ? into : column.values().extend(size);
      if (text_.peek() == 'n' && text_.take_word("null")) {
        if (!is_floating_point(column.dtype())) {
          return too_narrow(column, "a value in a list of " + to_string(column.dtype()),
                            text_.at() - 4);
        }
        fill_null(column.dtype(), place, 1);
      } else if (!item(column, place)) {
        return false;
      }
      if (into != nullptr) into += size;
    } while (text_.take(','));
    if (count <= expected && !text_.take(']')) return malformed("',' or ']'");
  }
  if (is_free || count == expected) return true;
  return too_narrow(column, "a list of length " + std::to_string(expected), begin);
}

bool JsonRows::text(TextColumn& column) {
  const char* const begin = text_.at();
  if (*begin == '"') {
    std::string_view value;
    if (!text_.take_string(value, scratch_)) return malformed(nullptr);
    column.values().append(value);
    return true;
  }
  if (*begin == '[' || *begin == '{') {
    return column.target().takes_json ? raw(column) : wrong_kind(column);
  }
  return raw(column);
}

bool JsonRows::text_list(TextColumn& column) {
  if (text_.peek() != '[') return wrong_kind(column);
  text_.move_to(text_.at() + 1);
  if (text_.take(']')) return true;
  do {
    text_.skip_blanks();
    const char* const begin = text_.at();
    if (*begin == '[' || *begin == '{') return too_narrow(column, "a string in a list", begin);
    if (*begin == 'n' && text_.take_word("null")) {
      return mismatch(column.target().column.name(), "expected a string in a list, found null");
    }
    if (!text(column)) return false;
    column.end_item();
  } while (text_.take(','));
  return text_.take(']') || malformed("',' or ']'");
}

/// Stores the source text of the value.
bool JsonRows::raw(TextColumn& column) {
  const char* const begin = text_.at();
  if (!text_.skip_value()) return malformed(nullptr);
  column.values().append({begin, static_cast<std::size_t>(text_.at() - begin)});
  return true;
}

/// Rejects a value of a kind (scalar, list or object) that the column does not accept. Does not
/// request another plan, because type inference uses only the values that have the kind of the
/// first value in the column.
bool JsonRows::wrong_kind(const TextColumn& column) {
  const Target& target = column.target();
  return unexpected(target.column.name(),
                    target.form == Form::json ? "a list or an object" : type_text(target.column),
                    text_.at());
}

/// Rejects a value that a wider type would accept. Requests another plan, unless the plan is final.
/// `begin`: start of the value.
bool JsonRows::too_narrow(const TextColumn& column, const std::string& expected,
                          const char* begin) {
  const Outcome outcome = plan_.is_final ? Outcome::mismatch : Outcome::promote;
  return unexpected(column.target().column.name(), expected, begin, outcome);
}

bool JsonRows::mismatch(std::string column, std::string message, Outcome outcome) {
  fault_ = {{std::move(column), std::move(message)}, outcome};
  return false;
}

/// Rejects the record because of the value at `begin`; with Outcome::malformed if the value itself
/// is malformed.
bool JsonRows::unexpected(std::string column, const std::string& expected, const char* begin,
                          Outcome outcome) {
  text_.move_to(begin);
  if (!text_.skip_value()) return malformed(nullptr);
  const std::string_view value(begin, static_cast<std::size_t>(text_.at() - begin));
  return mismatch(std::move(column), "expected " + expected + ", found " + shown(value), outcome);
}

bool JsonRows::malformed(const char* expected) {
  if (fault_.outcome != Outcome::kept) return false;
  if (expected != nullptr) text_.fail(expected);
  return mismatch("", text_.fault(), Outcome::malformed);
}

}  // namespace tenfold
