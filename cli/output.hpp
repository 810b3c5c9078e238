#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/tensor.hpp>
#include <tenfold/value.hpp>

namespace tenfold::cli {

enum class Style { plain, bold, dim, node, dtype, good, bad };

/// The standard output of a command. It is written after the command has succeeded, so that a
/// command that fails prints nothing to standard output.
class Output {
 public:
  Output();

  /// Appends a line unchanged.
  void line(std::string_view text) { text_.append(text).append("\n"); }
  /// Appends text that contains its own line ends.
  void text(std::string_view text) { text_.append(text); }
  /// Appends the JSON document that a command prints with --json.
  void document(const Value& value);

  /// Adds colours to `text` if standard output is a terminal, TERM is not "dumb", and NO_COLOR is
  /// empty or not set.
  std::string paint(Style style, std::string_view text) const;
  /// Current width of the terminal; 0 if lines have no limit.
  std::size_t columns() const noexcept;

  /// Writes everything. Throws Error(io), with EPIPE if the reader has closed the pipe.
  void flush();

 private:
  std::string text_;
  bool colours_;
};

/// Rows below a header, each column as wide as its widest cell. If the terminal is too narrow, the
/// cells of the first column are shortened in the middle. If that is not enough, the first cell of
/// each row gets its own line, and the other cells follow in as many lines as necessary. In this
/// form, a cell is shortened only if it is wider than a line.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
    Style style = Style::plain;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// Adds a row, with one printable cell for each column.
  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void print(Output& out) const;

 private:
  using Cells = std::vector<std::string>;
  std::vector<std::size_t> widths() const;
  std::string line_of(const Output& out, const Cells& cells, std::size_t begin, std::size_t end,
                      std::span<const std::size_t> widths, bool is_header) const;

  std::vector<Column> columns_;
  std::vector<Cells> rows_;
};

/// "12 tensors", "1 tensor".
std::string counted(std::uint64_t count, std::string_view noun);
/// "1,234,567".
std::string with_commas(std::uint64_t number);

/// Five significant digits; "-" for NaN.
std::string short_number(double number);
/// "999 bytes", "1.5 GB": powers of 1000.
std::string human_bytes(std::uint64_t size_bytes);
/// "[3, 4]".
std::string shape_text(const Shape& shape);
/// The shape as a JSON list of integers.
Value shape_json(const Shape& shape);

}  // namespace tenfold::cli
