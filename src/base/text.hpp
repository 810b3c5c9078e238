#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenfold::base {

/// Quotes `text` for a message: control characters, double quotes, backslashes and invalid UTF-8
/// are escaped as \xNN, and a string of more than `max_bytes` is cut and ends with "...".
std::string quote(std::string_view text, std::size_t max_bytes = 200);

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

/// Lower case of an ASCII letter; other bytes are unchanged, in every locale.
constexpr char to_lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

/// Formats as "[3, 4]".
std::string list_text(std::span<const std::int64_t> values);

/// True if `text` is well-formed UTF-8 (no surrogates, no overlong forms).
bool is_utf8(std::string_view text) noexcept;

/// Up to `count` of `candidates` that are similar to `wanted`, nearest first, for "did you mean".
/// Returns none if `wanted` is longer than 256 bytes. The time is bounded: if there are very many
/// long candidates, edit distances are computed only for the first of them.
std::vector<std::string> near_matches(std::string_view wanted,
                                      std::span<const std::string> candidates,
                                      std::size_t count = 3);

/// A remedy that names the near_matches(): `did you mean "a" or "b"?`. Empty if there are none.
std::string did_you_mean(std::string_view wanted, std::span<const std::string> candidates,
                         std::size_t count = 3);

/// Formats a size for people: "1,234 bytes", "1.5 GB".
std::string human_bytes(std::uint64_t size_bytes);

}  // namespace tenfold::base
