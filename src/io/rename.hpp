#pragma once

#include <tenfold/io.hpp>

namespace tenfold {

/// Throws Error(key_not_found), with a near match, for a name that no leaf or value of `tree` has.
void require_renamed(const TensorDict& tree, const std::vector<std::string>& names);

/// Returns the same tree with its tensors and JSON values under new dotted names, which are split
/// as by renamed_path(). Entries keep their order, and nodes their kinds, except for those that
/// fix_kind() changes. Throws Error(invalid_argument) for an empty new name, and, naming both
/// sources, if two entries get one dotted name or if one would be inside the other.
TensorDict rename_leaves(const TensorDict& tree, const RenameFunction& rename);

/// Splits the new name of the entry at `path` into keys. Unchanged keys at both ends of the path
/// are kept, dots included. If exactly one key changed, the new one stays one key, dots included.
/// Otherwise each dot begins a new key. If `flat` (the root contains no nodes), the whole name is
/// one key.
KeyPath renamed_path(const KeyPath& path, const std::string& new_name, bool flat);

}  // namespace tenfold
