#include "formats/folder/links.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "formats/folder/files.hpp"
#include "formats/folder/keys.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// A file with several hard links.
struct LinkedFile {
  std::string display;
  std::uint64_t num_links = 0;
  std::uint64_t num_found = 0;  ///< links found in the tree
};
using LinkedFiles = std::map<std::pair<std::uint64_t, std::uint64_t>, LinkedFile>;

void find_links(const os::Directory& folder, std::size_t depth, LinkedFiles& files) {
  if (depth > Folder::kMaxDepth) return;
  for (const std::string& name : folder.list()) {
    const auto found = folder.entry_info(name);
    if (!found) continue;
    if (found->is_directory) {
      const os::Directory inner = os::Directory::try_open_at(folder, name);
      if (inner.valid()) find_links(inner, depth + 1, files);
    } else if (found->is_regular && found->num_links > 1) {
      LinkedFile& file = files[{found->device, found->inode}];
      if (file.num_found++ == 0) file.display = folder.display_of(name);
      file.num_links = found->num_links;
    }
  }
}

/// True if the parent folder is part of the same tree: a node may share files with other nodes of
/// its tree.
bool is_node_of_parent(const os::Directory& folder) {
  try {
    return folder.open_parent().entry_info(std::string(kMetaName)).has_value();
  } catch (const Error&) {
    return false;  // for example, no permission to open the parent folder
  }
}

}  // namespace

void refuse_shared_files(const os::Directory& folder) {
  LinkedFiles files;
  find_links(folder, 0, files);
  if (files.empty()) return;
  os::Directory top = folder.duplicate();
  for (std::size_t depth = 0; depth < Folder::kMaxDepth && is_node_of_parent(top); ++depth) {
    top = top.open_parent();
  }
  LinkedFiles of_tree;
  find_links(top, 0, of_tree);
  for (const auto& [inode, file] : files) {
    const std::uint64_t num_own = of_tree[inode].num_found;
    if (num_own >= file.num_links) continue;
    throw Error::io(EACCES, file.display)
        .problem("it cannot be written in place")
        .expected("a file whose hard links are all in this tree")
        .found(
            file.num_links - num_own,
            " more hard link(s) elsewhere: steps of a checkpoint directory share unchanged files")
        .remedy(
            "CheckpointManager.export (in C++: export_step) makes a copy of the step to write "
            "into");
  }
}

}  // namespace tenfold::detail::formats::folder
