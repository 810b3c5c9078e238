#include "ingest/text/record_blocks.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "ingest/text/json_text.hpp"

namespace tenfold {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

const char* find_char(const char* begin, const char* end, char wanted) {
  return static_cast<const char*>(
      std::memchr(begin, wanted, static_cast<std::size_t>(end - begin)));
}

/// One past the last `wanted` in [begin, end), or null.
const char* after_last(const char* begin, const char* end, char wanted) {
  const std::size_t found =
      std::string_view(begin, static_cast<std::size_t>(end - begin)).rfind(wanted);
  return found == std::string_view::npos ? nullptr : begin + found + 1;
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// The ',' or ']' after the array item at `at`; null if the item does not end before `end`. Ignores
/// the content of strings.
const char* end_of_item(const char* at, const char* end) {
  std::int64_t depth = 0;
  for (; at < end; ++at) {
    switch (*at) {
      case '"':
        for (++at; at < end && *at != '"'; ++at) at += *at == '\\' ? 1 : 0;
        break;
      case '[':
      case '{':
        ++depth;
        break;
      case '}':
        --depth;
        break;
      case ']':
        if (depth-- <= 0) return at;
        break;
      case ',':
        if (depth <= 0) return at;
        break;
      default:
        break;
    }
  }
  return nullptr;
}

/// A separator as a string literal of Python, for messages.
std::string shown(char separator) {
  return separator == '\t' ? "\"\\t\"" : "\"" + std::string(1, separator) + "\"";
}

/// True for a line such as `sep=;`, with which Excel names the separator at the start of a file.
bool names_separator(std::string_view line) {
  return line.size() == 5 && line.starts_with("sep=") && is_csv_separator(line[4]);
}

/// Throws if the header contains another separator more often than the assumed one, because then
/// each record would be read as one string, or split at its decimal commas.
void check_separator(const base::Where& where, std::string_view header, char assumed) {
  constexpr std::string_view kSeparators = ",;\t|";
  std::array<std::size_t, kSeparators.size()> counts{};
  bool is_quoted = false;
  for (const char c : header) {
    if (c == '"') is_quoted = !is_quoted;
    const std::size_t i = kSeparators.find(c);
    if (!is_quoted && i != std::string_view::npos) ++counts[i];
  }
  const std::size_t own = counts[kSeparators.find(assumed)];
  const auto most = std::ranges::max_element(counts);
  if (*most <= own) return;
  const std::string other = shown(kSeparators[static_cast<std::size_t>(most - counts.begin())]);
  throw base::invalid_argument(where)
      .expected("names separated by ", shown(assumed))
      .found(*most, " ", other, " and ", own, " ", shown(assumed))
      .remedy("set the option separator to " + other +
              " if it separates the fields, otherwise to " + shown(assumed));
}

}  // namespace

bool is_csv_separator(char c) {
  const bool is_letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  const bool is_number = (c >= '0' && c <= '9') || c == '.' || c == '+' || c == '-';
  const bool is_end = c == '\0' || c == '\r' || c == '\n' || c == '"' || c == '\'';
  return static_cast<unsigned char>(c) < 0x80 && !is_letter && !is_number && !is_end;
}

const char* take_csv_field(const char*& at, const char* end, char delimiter, CsvField& field) {
  field.is_quoted = at < end && *at == '"';
  field.has_escapes = false;
  if (!field.is_quoted) {
    field.begin = at;
    field.end = find_char(at, end, delimiter);
    if (field.end == nullptr) {
      field.end = end;
      at = nullptr;
    } else {
      at = field.end + 1;
    }
    return nullptr;
  }
  field.begin = at + 1;
  field.end = field.begin;
  while (true) {
    const char* const quote = find_char(field.end, end, '"');
    if (quote == nullptr) return "a quote that ends the field";
    field.end = quote;
    const char* const after = quote + 1;
    if (after < end && *after == '"') {
      field.has_escapes = true;
      field.end += 2;
      continue;
    }
    if (after < end && *after != delimiter) return "a delimiter after a quoted field";
    at = after < end ? after + 1 : nullptr;
    return nullptr;
  }
}

const char* end_of_csv_record(const char* begin, const char* end, char delimiter, char line_end) {
  const char* at = begin;
  const char* limit = nullptr;  // the first line end at or after `at`; `end` if there is none
  while (at < end) {
    // Search for the next line end only after the last one found was passed. A search for each
    // quote would take time quadratic in the length of the record.
    if (limit == nullptr || limit < at) {
      limit = find_char(at, end, line_end);
      if (limit == nullptr) limit = end;
    }
    const char* const quote = find_char(at, limit, '"');
    if (quote == nullptr) return limit == end ? nullptr : limit + 1;
    at = quote + 1;
    // Inside an unquoted field, a quote is an ordinary character.
    if (quote != begin && quote[-1] != delimiter) continue;
    while (true) {
      at = find_char(at, end, '"');
      if (at == nullptr) return nullptr;
      ++at;
      if (at >= end || *at != '"') break;
      ++at;
    }
  }
  return nullptr;
}

bool RecordCursor::next(Record& record) {
  switch (block_->file->kind) {
    case TextKind::json_lines:
      return next_line(record);
    case TextKind::json_array:
      return next_item(record);
    case TextKind::csv:
      return next_csv(record);
  }
  return false;
}

bool RecordCursor::next_line(Record& record) {
  while (at_ < block_->end) {
    const char* const feed = find_char(at_, block_->end, '\n');
    record = {at_, feed == nullptr ? block_->end : feed, line_};
    at_ = record.end + 1;
    ++line_;
    const char* first = record.begin;
    if (*first == '{') return true;
    while (first < record.end && is_blank(*first)) ++first;
    if (first < record.end) return true;
  }
  return false;
}

bool RecordCursor::next_item(Record& record) {
  if (ended_) return false;
  const bool is_first = at_ == block_->begin && block_->begins_file;
  while (at_ < block_->end && is_blank(*at_)) {
    if (*at_ == '\n') ++line_;
    ++at_;
  }
  if (at_ >= block_->end || (is_first && *at_ == ']')) return false;
  const char* const end = end_of_item(at_, block_->end);
  record = {at_, end == nullptr ? block_->end : end, line_};
  line_ += static_cast<std::uint64_t>(std::count(record.begin, record.end, '\n'));
  ended_ = end == nullptr || *end == ']';
  at_ = record.end + 1;
  return true;
}

bool RecordCursor::next_csv(Record& record) {
  while (at_ < block_->end) {
    const char line_end = block_->file->line_end;
    const char* after = end_of_csv_record(at_, block_->end, block_->file->delimiter, line_end);
    record = {at_, after == nullptr ? block_->end : after - 1, line_};
    line_ += static_cast<std::uint64_t>(std::count(record.begin, record.end, line_end)) + 1;
    at_ = record.end + 1;
    if (record.end > record.begin && record.end[-1] == '\r') --record.end;
    if (record.end > record.begin) return true;
  }
  return false;
}

BlockReader::BlockReader(std::vector<SourceFile> files, std::size_t block_bytes)
    : files_(std::move(files)), block_bytes_(block_bytes) {}

std::uint64_t BlockReader::num_read() const {
  return num_read_ + (stream_ ? stream_->num_read() : 0);
}

bool BlockReader::open_next_file() {
  if (stream_) num_read_ += stream_->num_read();
  stream_.reset();
  if (next_file_ == files_.size()) return false;
  const SourceFile& source = files_[next_file_++];
  stream_ = source.open();
  file_ = std::make_shared<TextFile>();
  file_->display = source.display;
  const bool is_csv = source.kind == SourceKind::csv || source.kind == SourceKind::tsv;
  file_->kind = is_csv ? TextKind::csv : TextKind::json_lines;
  file_->na_values = source.na_values;
  begins_ = true;
  at_end_ = false;
  array_ended_ = false;
  rest_.clear();
  line_ = 1;
  return true;
}

/// Appends to `memory` until it has `size` bytes, or the file ends.
void BlockReader::fill(TextMemory& memory, std::size_t size) {
  const std::size_t there = memory.size();
  memory.resize(size);
  const std::size_t count = stream_->read(std::as_writable_bytes(std::span(memory).subspan(there)));
  memory.resize(there + count);
  at_end_ = there + count < size;
}

/// One past the last record that ends in [begin, end), or null.
const char* BlockReader::last_end(const char* begin, const char* end) {
  if (file_->kind == TextKind::json_lines) return after_last(begin, end, '\n');
  const char* last = nullptr;
  if (file_->kind == TextKind::csv) {
    if (find_char(begin, end, '"') == nullptr) return after_last(begin, end, file_->line_end);
    while (const char* after = end_of_csv_record(begin, end, file_->delimiter, file_->line_end)) {
      last = begin = after;
    }
    return last;
  }
  while (!array_ended_) {
    const char* const item = end_of_item(begin, end);
    if (item == nullptr) return last;
    array_ended_ = *item == ']';
    last = begin = item + 1;
  }
  return last;
}

/// If a .json file is one array, skips its `[` and sets the kind. Returns false if there were only
/// blanks so far and the file has not ended.
bool BlockReader::begin_array(const char*& begin, const char* end) {
  const char* first = begin;
  while (first < end && is_blank(*first)) ++first;
  if (first == end) return at_end_;
  if (*first != '[') return true;
  file_->kind = TextKind::json_array;
  line_ += static_cast<std::uint64_t>(std::count(begin, first, '\n'));
  begin = first + 1;
  return true;
}

/// Skips blank lines. Returns false if there were only blanks so far and the file has not ended.
bool BlockReader::skip_blank_lines(const char*& begin, const char* end) {
  const char* at = begin;
  while (at < end && is_blank(*at) && *at != file_->delimiter) ++at;
  if (at == end && !at_end_) return false;
  // Go back to the start of the line that contains the first character that is not blank.
  while (at < end && at > begin && at[-1] != '\n' && at[-1] != '\r') --at;
  line_ += count_lines(begin, at);
  begin = at;
  return true;
}

/// Counts line ends of all three forms: LF, CRLF and CR.
std::uint64_t BlockReader::count_lines(const char* begin, const char* end) const {
  std::uint64_t lines = 0;
  for (const char* at = begin; at < end; ++at) {
    const bool is_pair = *at == '\r' && at + 1 < end && at[1] == '\n';
    if ((*at == '\n' || *at == '\r') && !is_pair) ++lines;
  }
  return lines;
}

/// Detects the line end from the header. Returns false if the header does not end before `end`, or
/// if it ends with a carriage return at `end`, which a line feed may follow.
bool BlockReader::find_line_end(const char* begin, const char* end) {
  file_->line_end = '\n';
  const char* const feed = end_of_csv_record(begin, end, file_->delimiter);
  const char* const limit = feed == nullptr ? end : feed;
  const char* const carriage = end_of_csv_record(begin, limit, file_->delimiter, '\r');
  if (carriage == nullptr || (carriage < limit && *carriage == '\n')) return feed != nullptr;
  if (carriage == end && !at_end_) return false;
  file_->line_end = '\r';
  return true;
}

/// Throws if the header ends with a carriage return without a line feed, but a record ends with a
/// line feed. Without this check, the records that end with line feeds would be read as one record.
void BlockReader::refuse_line_feeds(const char* begin, const char* end) const {
  if (file_->line_end != '\r' || find_char(begin, end, '\n') == nullptr) return;
  for (const char* at = begin; at < end;) {
    const char* const after = end_of_csv_record(at, end, file_->delimiter, '\r');
    const char* const limit = after == nullptr ? end : after;
    if (end_of_csv_record(at, limit, file_->delimiter) != nullptr) {
      throw base::corrupt(file_->display)
          .expected("a carriage return at the end of each record, as after the header")
          .found("a line feed")
          .remedy("convert the line ends");
    }
    at = limit;
  }
}

/// Uses the separator that the first line of the file names. Throws if the caller passed another
/// separator.
void BlockReader::use_separator(char named) {
  if (file_->has_known_delimiter && file_->delimiter != named) {
    throw base::invalid_argument(base::Where(file_->display, "line 1"))
        .expected("separator ", shown(file_->delimiter), ", the value of the option separator")
        .found(shown(named));
  }
  file_->delimiter = named;
  file_->has_known_delimiter = true;
}

/// Parses the header, after an optional line that names the separator. Returns false if the header
/// does not end before `end`, unless the file ends there.
bool BlockReader::take_header(const char*& begin, const char* end) {
  if (!skip_blank_lines(begin, end)) return false;
  if (!find_line_end(begin, end) && !at_end_) return false;
  const base::Where where(file_->display, "line " + std::to_string(line_) + ": header");
  const char* after = end_of_csv_record(begin, end, file_->delimiter, file_->line_end);
  const char* header_end = after == nullptr ? end : after - 1;
  if (header_end > begin && header_end[-1] == '\r') --header_end;
  const std::string_view header(begin, static_cast<std::size_t>(header_end - begin));
  if (line_ == 1 && names_separator(header)) {
    use_separator(header[4]);
    begin = after == nullptr ? end : after;
    ++line_;
    return take_header(begin, end);
  }
  if (!file_->has_known_delimiter) check_separator(where, header, file_->delimiter);
  std::set<std::string> seen;
  for (const char* at = header_end > begin ? begin : nullptr; at != nullptr;) {
    CsvField field;
    const char* const wrong = take_csv_field(at, header_end, file_->delimiter, field);
    std::string name(field.text().substr(0, wrong == nullptr ? std::string_view::npos : 0));
    if (field.has_escapes) {
      for (std::size_t twin = 0; (twin = name.find("\"\"", twin)) != std::string::npos; ++twin) {
        name.erase(twin, 1);
      }
    }
    if (wrong != nullptr) throw base::corrupt(where).expected(wrong).found("something else");
    if (!base::is_utf8(name)) {
      throw base::corrupt(where).expected("UTF-8").found("other bytes").remedy(kConvertToUtf8);
    }
    if (!seen.insert(name).second) {
      throw base::invalid_argument(where)
          .expected("distinct names")
          .found(base::quote(name), " twice")
          .remedy("rename one of the columns");
    }
    file_->header.push_back(std::move(name));
  }
  const char* const next = after == nullptr ? end : after;
  line_ += static_cast<std::uint64_t>(std::count(begin, next, file_->line_end));
  begin = next;
  return true;
}

/// Checks that only blanks follow the array of a file.
void BlockReader::expect_blanks(const char* begin, const char* end) {
  TextMemory memory(begin, end);
  while (true) {
    if (!std::all_of(memory.begin(), memory.end(), is_blank)) {
      throw base::corrupt(file_->display).expected("one array").found("more after its ']'");
    }
    if (at_end_) return;
    memory.clear();
    fill(memory, block_bytes_);
  }
}

/// Skips the start of the file: byte order mark, header, '['. Returns false if more bytes are
/// needed.
bool BlockReader::begin_file(const char*& begin, const char* end) {
  const std::string_view start(begin, static_cast<std::size_t>(end - begin));
  if (start.starts_with("\xFF\xFE") || start.starts_with("\xFE\xFF")) {
    throw base::corrupt(file_->display)
        .expected("UTF-8")
        .found("UTF-16")
        .remedy("convert the file to UTF-8, for example with iconv -f UTF-16 -t UTF-8");
  }
  if (start.starts_with(kByteOrderMark)) begin += kByteOrderMark.size();
  line_ = 1;
  const SourceFile& source = files_[next_file_ - 1];
  if (file_->kind == TextKind::csv) {
    file_->header.clear();
    file_->has_known_delimiter = source.separator != '\0';
    file_->delimiter = file_->has_known_delimiter       ? source.separator
                       : source.kind == SourceKind::tsv ? '\t'
                                                        : ',';
    return take_header(begin, end);
  }
  file_->kind = TextKind::json_lines;
  return source.kind != SourceKind::json || begin_array(begin, end);
}

/// Reads until at least one record, or the file, ends. Sets [begin, end) to whole records.
void BlockReader::read_records(TextMemory& memory, const char*& begin, const char*& end) {
  for (std::size_t size = std::max(block_bytes_, memory.size() + 1);; size *= 2) {
    if (!at_end_) fill(memory, size);
    begin = memory.data();
    end = begin + memory.size();
    array_ended_ = false;
    const bool is_ready = !begins_ || begin_file(begin, end);
    const char* const cut = is_ready ? last_end(begin, end) : nullptr;
    if (file_->kind == TextKind::json_array && (array_ended_ || at_end_)) {
      if (!array_ended_) {
        throw base::corrupt(file_->display)
            .expected("']' at the end of the array")
            .found("the end of the file")
            .remedy("it may be truncated");
      }
      expect_blanks(cut, end);
      end = cut;
      return;
    }
    if (at_end_ || cut != nullptr) {
      if (!at_end_) {
        rest_.assign(cut, end);
        end = cut;
      }
      refuse_line_feeds(begin, end);
      return;
    }
    if (size >= kMaxRecordBytes) {
      throw base::corrupt(file_->display)
          .expected("a record of at most ", kMaxRecordBytes, " bytes")
          .found("a longer one");
    }
  }
}

bool BlockReader::next(Block& block) {
  if (at_end_ && rest_.empty() && !begins_ && !open_next_file()) return false;
  block.memory.assign(rest_.begin(), rest_.end());
  rest_.clear();
  const char* begin = nullptr;
  const char* end = nullptr;
  read_records(block.memory, begin, end);
  block.file = file_;
  block.number = num_blocks_++;
  block.first_line = line_;
  block.begins_file = begins_;
  begins_ = false;
  const auto from = static_cast<std::size_t>(begin - block.memory.data());
  const auto to = static_cast<std::size_t>(end - block.memory.data());
  // Parsers may read a few bytes past the end.
  block.memory.resize(to);
  block.memory.resize(to + JsonText::kSlackBytes, '\0');
  block.begin = block.memory.data() + from;
  block.end = block.memory.data() + to;
  return true;
}

}  // namespace tenfold
