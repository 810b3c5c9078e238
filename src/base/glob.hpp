#pragma once

#include <string_view>

namespace tenfold::base {

/// Shell-style match of the whole text: `*` any run (dots included), `?` one character,
/// `[abc]`, `[a-z]`, `[!a]` a class. Linear time in the lengths' product.
bool glob_match(std::string_view pattern, std::string_view text) noexcept;

/// True if some text that starts with `prefix` may match: false is certain, true is not.
bool glob_may_match_below(std::string_view pattern, std::string_view prefix) noexcept;

/// True if `pattern` holds a `*`, `?` or `[`.
bool is_glob(std::string_view pattern) noexcept;

}  // namespace tenfold::base
