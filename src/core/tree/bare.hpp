#pragma once

#include <string>
#include <string_view>

#include <tenfold/tensordict.hpp>

// Bare roots: trees of one value that has no name. NodeInfo::is_bare says what they are.

namespace tenfold {

inline constexpr std::string_view kBareKey = "value";
inline constexpr std::string_view kBareNpzKey = "arr_0";

/// As is_bare() of a TensorDict.
bool is_bare(const detail::Node& root);

/// The same bare root with another key; any other tree as it is.
TensorDict with_bare_key(const TensorDict& root, std::string_view key = kBareKey);

/// The name of a file or folder without its last suffix: "x" of "a/x.npy" and of "a/x/".
std::string stem_of(const std::string& path);

}  // namespace tenfold
