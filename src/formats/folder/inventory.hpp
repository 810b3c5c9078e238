#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tenfold/io.hpp>

#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {

/// True for names that tenfold or tensordict leave for a moment, or after a crash.
bool is_leftover(std::string_view name);

/// Every entry of the folders of a saved tree, by its path within the tree.
struct Inventory {
  std::vector<std::string> files;    ///< that metadata names, or that belong to it
  std::vector<std::string> folders;  ///< the same, each before what is in it; not the root
  std::vector<std::string> foreign;  ///< that no metadata names: somebody else's, sorted
};

/// Lists a folder. What is under a foreign folder is not looked at; a folder whose meta.json is
/// missing or damaged names nothing.
Inventory take_inventory(const os::Directory& root);

/// What replacing the folder would remove though it is not of a saved tree: `foreign` of its
/// inventory, or everything if there is no meta.json. Sorted.
std::vector<std::string> foreign_in(const os::Directory& folder);

/// What no metadata of a saved tree names is somebody's who did not ask for its removal: throws
/// Error(invalid_argument), naming it, if there is such a thing in the folder at `path`.
void require_replaceable(const Path& path);

}  // namespace tenfold::detail::formats::folder
