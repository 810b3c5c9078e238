#pragma once

#include <tenfold/io.hpp>

namespace tenfold {

/// The same tree with its tensors and JSON values under new dotted names. Entries keep their
/// order, and nodes what they are; a name that is new gets nodes as the old path had, so that a
/// flat tree stays flat and keys with dots stay whole where they did not change.
/// Throws Error(invalid_argument), naming both sources, if two entries get one name.
/// Throws Error(key_not_found), with near matches, for a name that no leaf or value has.
void require_renamed(const TensorDict& tree, const std::vector<std::string>& names);

TensorDict rename_leaves(const TensorDict& tree, const RenameFunction& rename);

/// The path for `new_name` of what was at `path`; `flat`: the tree has no nodes.
KeyPath renamed_path(const KeyPath& path, const std::string& new_name, bool flat);

}  // namespace tenfold
