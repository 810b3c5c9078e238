#pragma once

#include <tenfold/io.hpp>

namespace tenfold {

/// Throws Error(key_not_found), with a near match, for a name that no leaf or value of `tree` has.
void require_renamed(const TensorDict& tree, const std::vector<std::string>& names);

/// The same tree with its tensors and JSON values under new dotted names. Entries keep their order,
/// and nodes their kinds. A new name is split into nodes like the old path, so that a flat tree
/// stays flat, and unchanged keys with dots are kept. Throws Error(invalid_argument) for an empty
/// new name, and, naming both sources, if two entries get the same name or if one would be inside
/// the other.
TensorDict rename_leaves(const TensorDict& tree, const RenameFunction& rename);

/// The new path, for `new_name`, of the entry at `path`; `flat`: the tree has no nodes.
KeyPath renamed_path(const KeyPath& path, const std::string& new_name, bool flat);

}  // namespace tenfold
