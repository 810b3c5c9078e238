#pragma once

#include <string_view>

namespace tenfold::base {

/// Matches the whole string against a shell-style pattern: `*` any number of characters (dots
/// included), `?` one character, `[abc]`, `[a-z]`, `[!a]` a class; a `[` that is never closed is a
/// literal. Characters are those of UTF-8, decoded without a check for overlong forms, surrogates
/// and code points above U+10FFFF. A byte that begins no sequence counts as a character. It
/// matches only the same byte, `?`, `*` and classes; in the ranges of classes, such bytes come
/// after all other characters. The time is at most proportional to the product of the lengths.
bool glob_match(std::string_view pattern, std::string_view text) noexcept;

/// False only if no string that starts with `prefix` can match. True does not mean that one can.
bool glob_may_match_below(std::string_view pattern, std::string_view prefix) noexcept;

/// True if `pattern` contains `*`, `?` or `[`.
bool is_glob(std::string_view pattern) noexcept;

}  // namespace tenfold::base
