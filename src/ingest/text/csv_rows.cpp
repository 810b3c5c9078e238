#include "ingest/text/csv_rows.hpp"

#include <limits>
#include <utility>

#include "base/text.hpp"

namespace tenfold {
namespace {

using namespace scalar_kind;

constexpr std::size_t kShownBytes = 40;

/// Compares case-insensitively with `lower`.
bool is_word(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((text[i] | 0x20) != lower[i]) return false;
  }
  return true;
}

/// The content of a field, with doubled quotes replaced.
std::string_view decoded(const CsvField& field, std::string& scratch) {
  if (!field.has_escapes) return field.text();
  scratch.clear();
  for (const char* at = field.begin; at < field.end; ++at) {
    scratch.push_back(*at);
    if (*at == '"') ++at;  // the second of two quotes
  }
  const std::size_t size = scratch.size();
  scratch.append(kNumberSlackBytes, '\0');
  return std::string_view(scratch).substr(0, size);
}

bool is_na(const CsvField& field, const NaValues& na_values) {
  return na_values != nullptr && !field.is_quoted && na_values->contains(field.text());
}

}  // namespace

CsvValue csv_value(std::string_view text, bool is_quoted) {
  CsvValue value;
  if (text.empty()) {
    value.kinds = is_quoted ? kString : kNull;
    return value;
  }
  if (scan_number(text.data(), NumberStyle::csv, value.number) &&
      value.number.end == text.data() + text.size()) {
    value.kinds = kinds_of(value.number);
    return value;
  }
  const bool is_true = is_word(text, "true");
  if (is_true || is_word(text, "false")) {
    value.kinds = kBool;
    value.is_true = is_true;
    return value;
  }
  const bool negative = text.front() == '-';
  const std::string_view word = text.substr(negative ? 1 : 0);
  const bool is_nan = is_word(text, "nan");
  if (is_nan || is_word(word, "inf") || is_word(word, "infinity")) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    value.kinds = kFloat;
    value.is_special = true;
    value.special = is_nan     ? std::numeric_limits<double>::quiet_NaN()
                    : negative ? -kInfinity
                               : kInfinity;
    return value;
  }
  value.kinds = kString;
  return value;
}

void CsvRows::begin_file(const TextFile& file) {
  delimiter_ = file.delimiter;
  na_values_ = file.na_values;
  seen_.resize(plan_.targets.size(), false);
  header_ = file.header;
  targets_.assign(file.header.size(), kIgnored);
  new_column_.clear();
  std::vector<bool> here(plan_.targets.size(), false);
  TextMap<std::size_t> target_of;
  for (std::size_t target = 0; target < plan_.targets.size(); ++target) {
    target_of.try_emplace(plan_.targets[target].column.name(), target);
  }
  for (std::size_t i = 0; i < file.header.size(); ++i) {
    const auto found = target_of.find(file.header[i]);
    if (found != target_of.end()) {
      targets_[i] = found->second;
      here[found->second] = seen_[found->second] = true;
    } else if (plan_.ignores_new_columns) {
      ignored_.push_back(file.header[i]);
    } else if (plan_.is_final) {
      // In other files, the values of this name are records, so the name is not a column. Its
      // fields in this file must be null.
      targets_[i] = kRecord;
    } else {
      new_column_ = file.header[i];
    }
  }
  absent_.clear();
  for (std::size_t target = 0; target < here.size(); ++target) {
    const bool is_required = plan_.is_given && !plan_.targets[target].column.nullable;
    if (is_required && !here[target]) absent_.push_back(target);
  }
}

void CsvRows::note_names(std::vector<bool>& seen, std::set<std::string>& ignored) {
  for (std::size_t target = 0; target < seen_.size(); ++target) {
    if (seen_[target]) seen[target] = true;
  }
  ignored.insert(ignored_.begin(), ignored_.end());
  ignored_.clear();
}

Outcome CsvRows::add(const char* begin, const char* end) {
  fault_.outcome = Outcome::kept;
  if (fields(begin, end)) {
    rows_.end_row();
  } else {
    rows_.undo_row();
  }
  return fault_.outcome;
}

bool CsvRows::fields(const char* begin, const char* end) {
  if (!new_column_.empty()) return fail(Outcome::promote, new_column_, "a new column");
  std::size_t count = 0;
  const char* at = begin;
  while (at != nullptr) {
    CsvField field;
    if (take_csv_field(at, end, delimiter_, field) != nullptr || count == targets_.size()) {
      return is_well_formed(begin, end);
    }
    if (put(field, count++)) continue;
    // If the number of fields is wrong, values may be in the wrong columns. So report a malformed
    // record rather than the value.
    const RowFault of_value = fault_;
    if (is_well_formed(begin, end)) fault_ = of_value;
    return false;
  }
  if (count != targets_.size()) return is_well_formed(begin, end);
  if (absent_.empty()) return true;
  return fail(Outcome::mismatch, plan_.targets[absent_.front()].column.name(), kLacksColumn);
}

/// Stores a field of the current record. `number`: index of its column in the header.
bool CsvRows::put(const CsvField& field, std::size_t number) {
  const std::size_t target = targets_[number];
  if (target == kIgnored) return true;
  if (target == kRecord) {
    if (is_na(field, na_values_) || (field.text().empty() && !field.is_quoted)) return true;
    return fail(Outcome::mismatch, header_[number],
                "expected an object, found " + base::quote(decoded(field, scratch_), kShownBytes));
  }
  TextColumn& column = rows_.column(target);
  column.begin_value();
  if (!this->field(field, column)) return false;
  column.end_value();
  return true;
}

/// True if all fields of the record are well-formed and their number is that of the header.
/// Otherwise sets the fault.
bool CsvRows::is_well_formed(const char* begin, const char* end) {
  std::size_t count = 0;
  for (const char* at = begin; at != nullptr; ++count) {
    CsvField field;
    const char* const expected = take_csv_field(at, end, delimiter_, field);
    if (expected == nullptr) continue;
    const std::string_view found(field.begin - 1, static_cast<std::size_t>(end - field.begin + 1));
    return fail(Outcome::malformed, "",
                "expected " + std::string(expected) + ", found " + base::quote(found, kShownBytes));
  }
  if (count == targets_.size()) return true;
  const std::size_t expected = targets_.size();
  return fail(Outcome::malformed, "",
              "expected " + std::to_string(expected) + (expected == 1 ? " field" : " fields") +
                  ", found " + std::to_string(count));
}

bool CsvRows::set_null(TextColumn& column) {
  if (plan_.is_given && !column.target().column.nullable) {
    return fail(Outcome::mismatch, column.target().column.name(),
                "expected a value, found none; make the column nullable in the schema");
  }
  column.set_null();
  return true;
}

bool CsvRows::field(const CsvField& field, TextColumn& column) {
  if (is_na(field, na_values_)) return set_null(column);
  const Target& target = column.target();
  const std::string_view text = decoded(field, scratch_);
  if (target.form == Form::text) {
    if (text.empty() && !field.is_quoted) return set_null(column);
    if (!base::is_utf8(text)) {
      return fail(Outcome::malformed, target.column.name(),
                  "expected UTF-8, found other bytes; " + std::string(kConvertToUtf8));
    }
    column.values().append(text);
    return true;
  }
  NumberText number;
  if (target.form == Form::scalar && target.is_typed && !text.empty() &&
      scan_number(text.data(), NumberStyle::csv, number) &&
      number.end == text.data() + text.size() &&
      put_number(number, column.dtype(), plan_.is_given, column.row_value()) == Fit::fits) {
    return true;
  }
  const CsvValue value = csv_value(text, field.is_quoted);
  if (value.kinds == kNull) return set_null(column);
  Fit fit = Fit::wrong_type;
  if (target.form == Form::scalar && target.is_typed) {
    std::byte* const into = column.row_value();
    if ((value.kinds & kBool) != 0) {
      fit = put_bool(value.is_true, target, into);
    } else if (value.is_special) {
      fit = put_special(value.special, column.dtype(), into);
    } else if ((value.kinds & kString) == 0) {
      fit = put_number(value.number, column.dtype(), plan_.is_given, into);
    }
  }
  if (fit == Fit::fits) return true;
  const std::string expected = fit == Fit::too_large
                                   ? "a number that fits " + type_text(target.column)
                                   : type_text(target.column);
  return fail(plan_.is_final ? Outcome::mismatch : Outcome::promote, target.column.name(),
              "expected " + expected + ", found " + base::quote(text, kShownBytes));
}

bool CsvRows::fail(Outcome outcome, std::string column, std::string message) {
  fault_ = {{std::move(column), std::move(message)}, outcome};
  return false;
}

void CsvTypes::begin_file(const TextFile& file) {
  delimiter_ = file.delimiter;
  na_values_ = file.na_values;
  members_.clear();
  for (const std::string& name : file.header) {
    types_.member(name);
    members_.push_back(types_.by_name.find(name)->second);
  }
}

void CsvTypes::add(const char* begin, const char* end) {
  // A malformed record must not affect the types.
  kinds_.clear();
  const char* at = begin;
  while (at != nullptr) {
    CsvField field;
    if (take_csv_field(at, end, delimiter_, field) != nullptr) return;
    kinds_.push_back(is_na(field, na_values_)
                         ? kNull
                         : csv_value(decoded(field, scratch_), field.is_quoted).kinds);
  }
  if (kinds_.size() != members_.size()) return;
  ++types_.num_objects;
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    ValueTypes& member = types_.members[members_[i]].types;
    if (kinds_[i] == kNull) {
      member.add_null();
    } else {
      member.add_scalar(kinds_[i]);
    }
  }
}

}  // namespace tenfold
