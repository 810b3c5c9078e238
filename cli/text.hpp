#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenfold::cli {

/// The first character of a text that is not empty. `valid` is false for a byte that does not
/// start well-formed UTF-8; it then counts as one character of one byte.
struct CodePoint {
  std::uint32_t value = 0;
  std::size_t size_bytes = 1;
  bool valid = false;
};
CodePoint first_code_point(std::string_view text) noexcept;

/// `text` as it may be shown on a terminal: control characters and broken UTF-8 as \xNN, so that
/// no key or value can move the cursor or end the line.
std::string printable(std::string_view text);

/// Columns that a printable text takes: wide characters (CJK, emoji) take two.
std::size_t width_of(std::string_view text) noexcept;

/// `text` in at most `width` columns: what does not fit is left out at the end or in the middle,
/// and an ellipsis shows where.
std::string cut_end(std::string_view text, std::size_t width);
std::string cut_middle(std::string_view text, std::size_t width);

/// Insertions, deletions, replacements and swaps of neighbours that make `a` of `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace tenfold::cli
