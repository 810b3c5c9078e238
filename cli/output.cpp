#include "output.hpp"

#include <fmt/format.h>
#include <tenfold/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "json.hpp"
#include "terminal.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

constexpr std::size_t kGap = 2;             ///< blanks between columns
constexpr std::size_t kIndent = 2;          ///< blanks before each line of a row except the first
constexpr std::size_t kLeastKeyWidth = 16;  ///< minimum width of the first column

std::string_view code_of(Style style) {
  switch (style) {
    case Style::plain:
      return "";
    case Style::bold:
      return "\x1b[1m";
    case Style::dim:
      return "\x1b[2m";
    case Style::node:
      return "\x1b[1;34m";
    case Style::dtype:
      return "\x1b[36m";
    case Style::good:
      return "\x1b[32m";
    case Style::bad:
      return "\x1b[31m";
  }
  return "";
}

bool use_colours() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return is_terminal(Stream::output) && (no_colour == nullptr || *no_colour == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

/// Assigns the cells of a row to lines: the first cell has its own line, and the other cells share
/// indented lines. Returns the index after the last cell of each line. Reduces `widths` for cells
/// that are wider than a line.
std::vector<std::size_t> wrap(std::vector<std::size_t>& widths, std::size_t columns) {
  const std::size_t room = std::max(columns, kIndent + 1) - kIndent;
  widths[0] = std::min(widths[0], columns);
  std::vector<std::size_t> breaks = {1};
  std::size_t used = 0;
  for (std::size_t i = 1; i < widths.size(); ++i) {
    widths[i] = std::min(widths[i], room);
    if (i > 1 && used + kGap + widths[i] > room) {
      breaks.push_back(i);
      used = 0;
    }
    used += (used == 0 ? 0 : kGap) + widths[i];
  }
  breaks.push_back(widths.size());
  return breaks;
}

[[noreturn]] void fail_to_write() {
  const int error = errno;
  throw Error::io(error, "standard output", "cannot write");
}

}  // namespace

Output::Output() : colours_(use_colours()) {}

std::size_t Output::columns() const noexcept {
  return static_cast<std::size_t>(columns_of(Stream::output));
}

void Output::document(const Value& value) { line(strict_json(value)); }

std::string Output::paint(Style style, std::string_view text) const {
  if (!colours_ || style == Style::plain || text.empty()) return std::string(text);
  return std::string(code_of(style)) + std::string(text) + "\x1b[0m";
}

void Output::flush() {
  if (std::fwrite(text_.data(), 1, text_.size(), stdout) != text_.size()) fail_to_write();
  if (std::fflush(stdout) != 0) fail_to_write();
  text_.clear();
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(width_of(column.title));
  for (const Cells& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  return widths;
}

/// The cells [begin, end) of a row in one line.
std::string Table::line_of(const Output& out, const Cells& cells, std::size_t begin,
                           std::size_t end, std::span<const std::size_t> widths,
                           bool is_header) const {
  std::string line;
  for (std::size_t i = begin; i < end; ++i) {
    const std::string cell =
        i == 0 ? cut_middle(cells[i], widths[i]) : cut_end(cells[i], widths[i]);
    const std::string blanks(widths[i] - width_of(cell), ' ');
    const std::string shown = out.paint(is_header ? Style::dim : columns_[i].style, cell);
    if (i != begin) line.append(kGap, ' ');
    if (columns_[i].align == Align::right) {
      line += blanks + shown;
    } else {
      line += shown + (i + 1 < end ? blanks : "");
    }
  }
  line.erase(line.find_last_not_of(' ') + 1);  // remove blanks of empty cells at the end
  return line;
}

void Table::print(Output& out) const {
  std::vector<std::size_t> widths = this->widths();
  const std::size_t columns = out.columns();
  std::size_t total = kGap * (widths.size() - 1);
  for (const std::size_t width : widths) total += width;
  std::vector<std::size_t> breaks = {widths.size()};  // index after the last cell of each line
  if (columns != 0 && total > columns) {
    const std::size_t excess = total - columns;
    const std::size_t least = std::min(widths[0], kLeastKeyWidth);
    if (widths[0] >= excess + least) {
      widths[0] -= excess;
    } else {
      breaks = wrap(widths, columns);
    }
  }
  const auto print_row = [&](const Cells& cells, bool is_header) {
    std::size_t begin = 0;
    for (const std::size_t end : breaks) {
      const std::string line = line_of(out, cells, begin, end, widths, is_header);
      if (begin == 0 || !line.empty()) out.line(std::string(begin == 0 ? 0 : kIndent, ' ') + line);
      begin = end;
    }
  };
  Cells titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  print_row(titles, true);
  for (const Cells& row : rows_) print_row(row, false);
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return with_commas(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string short_number(double number) {
  return std::isnan(number) ? "-" : fmt::format("{:.5g}", number);
}

std::string with_commas(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  return text;
}

std::string human_bytes(std::uint64_t size_bytes) {
  if (size_bytes < 1000) return counted(size_bytes, "byte");
  constexpr std::array<std::string_view, 6> kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double amount = static_cast<double>(size_bytes) / 1000;
  std::size_t unit = 0;
  while (amount >= 999.95 && unit + 1 < kUnits.size()) {
    amount /= 1000;
    ++unit;
  }
  return fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Value shape_json(const Shape& shape) {
  Value::List list;
  for (const std::int64_t length : shape) list.items.emplace_back(length);
  return {std::move(list)};
}

}  // namespace tenfold::cli
