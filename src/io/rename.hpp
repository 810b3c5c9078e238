#pragma once

#include <string_view>

#include <tenfold/io.hpp>

namespace tenfold {

/// Appends the parts of a dotted name to `path`.
void append_split(std::string_view name, KeyPath& path);

/// Throws Error(key_not_found) for a name that no tensor or JSON value of `tree` has. The message
/// contains a near match if there is one, or explains that the name is the start of other names.
void require_renamed(const TensorDict& tree, const std::vector<std::string>& names);

/// Returns a tree in which each tensor and JSON value has the dotted name that `rename` returns for
/// its old one. If a column of a data set is renamed, its end offsets and its validity are, too.
/// renamed_path() splits the new names into keys. Entries keep their order. Nodes keep
/// their kinds, unless fix_kind() changes them. Throws Error(invalid_argument) for an empty new
/// name. Also throws it, naming both old names, if one entry would be inside another, or if two
/// entries get the same dotted name and at least one of them was renamed.
TensorDict rename_leaves(const TensorDict& tree, const RenameFunction& rename);

/// Splits the new name of the entry at `path` into keys. Unchanged keys at both ends of the path
/// are kept, even if they contain dots. If exactly one key changed, the text that replaces it is
/// one key, even if it contains dots. Otherwise the changed part is split at each dot. If `flat`
/// (the root has no child nodes), the whole name is one key.
KeyPath renamed_path(const KeyPath& path, const std::string& new_name, bool flat);

}  // namespace tenfold
