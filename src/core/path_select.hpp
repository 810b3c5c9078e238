#pragma once

#include <vector>

#include <tenfold/tensordict.hpp>

namespace tenfold {

/// True if one of `keys` (as LoadOptions::keys) names the entry at `path` or a node above it:
/// several keys are an exact path; one is an exact path in dotted form ("model.encoder") or a
/// glob over dotted paths. What is named brings everything below it. No keys: false.
bool selected(const KeyPath& path, const std::vector<KeyPath>& keys);

/// False if certainly nothing at or below the node at `node` is selected(): it need not be entered.
bool may_select_below(const KeyPath& node, const std::vector<KeyPath>& keys);

}  // namespace tenfold
