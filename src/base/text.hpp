#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenfold::base {

/// Returns `text` in double quotes, for a message. Double quotes and backslashes are escaped with a
/// backslash, control characters and invalid UTF-8 as \xNN. If `text` has more than `max_bytes`,
/// the rest is replaced by "...".
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

/// Up to `count` of `candidates` that are similar to `wanted` but not equal to it, nearest first,
/// for "did you mean". Two strings are similar if their edit distance is small, or if one consists
/// of the last dotted components of the other, as "weight" and "encoder.weight". Returns none if
/// `wanted` is empty or longer than 256 bytes. The time is bounded: if there are very many long
/// candidates, the edit distances of the last of them are not computed.
std::vector<std::string> near_matches(std::string_view wanted,
                                      std::span<const std::string> candidates,
                                      std::size_t count = 3);

/// Formats the near_matches() for Error::remedy(): `did you mean "a" or "b"?`. Empty if there are
/// none.
std::string did_you_mean(std::string_view wanted, std::span<const std::string> candidates,
                         std::size_t count = 3);

/// Formats a size for people: "1,234 bytes", "1.5 GB".
std::string human_bytes(std::uint64_t size_bytes);

}  // namespace tenfold::base
