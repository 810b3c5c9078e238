#pragma once

#include <string>
#include <string_view>

#include <tenfold/tensordict.hpp>

// Bare roots: trees that consist of one unnamed value. See NodeInfo::is_bare.

namespace tenfold {

/// The key of the entry of a bare root, and its key in an .npz file.
inline constexpr std::string_view kBareKey = "value";
inline constexpr std::string_view kBareNpzKey = "arr_0";

/// Like is_bare() of <tenfold/tensordict.hpp>, for the node behind a TensorDict.
bool is_bare(const detail::Node& root);

/// Returns a bare root with its key replaced by `key`. Returns other trees unchanged.
TensorDict with_bare_key(const TensorDict& root, std::string_view key = kBareKey);

/// The name of a file or folder without its last suffix: "x" for "a/x.npy" and for "a/x/".
std::string stem_of(const std::string& path);

}  // namespace tenfold
