#pragma once

#include <string_view>

namespace tenfold::base {

/// True if the whole of `text` matches a shell-style pattern: `*` matches any number of characters
/// (dots included), `?` one character, `[abc]`, `[a-z]` and `[!a]` one character of a class. A `[`
/// that is never closed is a literal. Takes at most time proportional to the product of both sizes.
///
/// Characters are UTF-8, decoded without a check for overlong forms, surrogates and code points
/// above U+10FFFF. A byte that begins no UTF-8 sequence counts as one character. In the range of a
/// class, such a byte is greater than every valid character.
bool glob_match(std::string_view pattern, std::string_view text) noexcept;

/// If false, no string that starts with `prefix` matches the pattern. If true, one may or may not
/// match.
bool glob_may_match_below(std::string_view pattern, std::string_view prefix) noexcept;

/// True if `pattern` contains `*`, `?` or `[`.
bool is_glob(std::string_view pattern) noexcept;

}  // namespace tenfold::base
