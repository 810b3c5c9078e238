#include "ingest/bad_row.hpp"

#include <utility>

#include <tenfold/value.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/value/value_json.hpp"

namespace tenfold {
namespace {

/// The greatest number of bytes of a row that BadRow::text shows.
constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;

}  // namespace

std::string shown_text(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    std::size_t size = kMaxTextBytes;
    // Cut before the character that does not fit.
    while (size > kMaxTextBytes - 3 && (text[size] & 0xC0) == 0x80) --size;
    text = text.substr(0, size);
  }
  if (base::is_utf8(text)) return std::string(text);
  std::string made;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80) {
      made.push_back(c);
    } else {
      made += "\xEF\xBF\xBD";
    }
  }
  return made;
}

std::string to_json_line(const BadRow& bad) {
  Value::Object document;
  const auto add = [&](const char* key, Value value) {
    document.members.emplace_back(key, std::move(value));
  };
  add("line", bad.line ? Value(static_cast<std::int64_t>(*bad.line)) : Value());
  add("row", Value(bad.row));
  add("column", bad.column.empty() ? Value() : Value(bad.column));
  add("error", Value(shown_text(bad.error)));  // file names need not be UTF-8
  add("text", Value(bad.text));
  return to_json(Value(std::move(document)), codecs::JsonStyle::python) + "\n";
}

Error error_of_row(ErrorCode code, std::string_view where, std::string place, const BadValue& bad) {
  if (!bad.column.empty()) {
    place += (place.empty() ? "column " : ", column ") + base::quote(bad.column);
  }
  return base::fail(code, where).part(place).problem(bad.what);
}

Error error_of_row(ErrorCode code, std::string_view file, std::uint64_t line, std::int64_t row,
                   const RowFault& fault) {
  return error_of_row(code, file,
                      "line " + std::to_string(line) + " (row " + std::to_string(row) + ")", fault);
}

Error SourceRows::error_of(const BadValue& bad) const {
  const SourceRow source = at(bad.row);
  return error_of_row(ErrorCode::invalid_argument, source.where,
                      "row " + std::to_string(source.row), bad);
}

BadRow SourceRows::bad_row_of(const BadValue& bad, std::string_view text) const {
  return {.row = at(bad.row).row,
          .column = bad.column,
          .error = find ? error_of(bad).what() : bad.what,
          .text = shown_text(text)};
}

BadRow bad_row_of(std::string_view file, std::uint64_t line, std::int64_t row,
                  const RowFault& fault, std::string_view text) {
  BadRow bad{.line = line, .row = row, .column = fault.column};
  bad.error = error_of_row(ErrorCode::invalid_argument, file, line, row, fault).what();
  bad.text = shown_text(text);
  return bad;
}

}  // namespace tenfold
