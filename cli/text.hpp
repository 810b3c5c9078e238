#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tenfold::cli {

/// The first character of a non-empty string. `valid` is false if the string does not start with
/// well-formed UTF-8. The first byte then counts as one character.
struct CodePoint {
  std::uint32_t value = 0;
  std::size_t size_bytes = 1;
  bool valid = false;
};
CodePoint first_code_point(std::string_view text) noexcept;

/// True for C0 and C1 control characters and DEL.
bool is_control(std::uint32_t c) noexcept;

/// Formats `text` for a terminal. Control characters and invalid UTF-8 become \xNN, so that no key
/// or value can move the cursor or end the line. Invisible characters and characters that reverse
/// text become \uNNNN or \UNNNNNNNN.
std::string printable(std::string_view text);

/// Display width of a printable string: wide characters (CJK, emoji) take two columns, combining
/// accents, joiners and variation selectors none.
std::size_t width_of(std::string_view text) noexcept;

/// Shortens `text` to at most `width` columns, with an ellipsis at the end or in the middle.
std::string cut_end(std::string_view text, std::size_t width);
std::string cut_middle(std::string_view text, std::size_t width);

/// The smallest number of insertions, deletions, replacements and swaps of neighbours, each of
/// single bytes, that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace tenfold::cli
