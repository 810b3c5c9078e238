#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {

/// True for the names of temporary files and folders of tenfold or tensordict, which may remain
/// after a crash.
bool is_leftover(std::string_view name);

/// Like is_leftover(), but false if the metadata of `folder` names an entry with this file name: a
/// key of tensordict may look like a temporary name.
bool is_leftover_in(const os::Directory& folder, const std::string& name, bool is_folder);

/// True for the names of tenfold's own files and folders that begin with "%". No encoded key is
/// such a name. An unencoded key (PlanOptions::robust_names) may be such a name.
bool is_own_name(std::string_view name);

/// All files and folders of a saved tree, by relative path.
struct Inventory {
  std::vector<std::string> files;    ///< those that metadata names, tenfold's own, and leftovers
  std::vector<std::string> folders;  ///< as `files`; parents first, without the root
  std::vector<std::string> foreign;  ///< other files and folders, which are not part of the tree
};

/// Lists the saved tree in a folder. Does not enter foreign folders and leftovers
/// (is_leftover_in()). A folder whose meta.json is missing or damaged names no entries except
/// meta.json itself. In a data set of parts, `%parts.json` names the parts. Throws
/// Error(unsupported) if a file of metadata is of a newer version, or if folders are nested too
/// deep.
Inventory take_inventory(const os::Directory& root);

/// Returns the sorted relative paths that are not part of a saved tree, and would be lost if the
/// folder was replaced: Inventory::foreign, or every entry of the folder if it is not a saved tree.
std::vector<std::string> foreign_in(const os::Directory& folder);

/// Throws Error(invalid_argument) if foreign_in() finds entries in the folder at `path`: replacing
/// the folder would remove files of the user. Does nothing if there is no folder.
void require_replaceable(const Path& path);

}  // namespace tenfold::detail::formats::folder
