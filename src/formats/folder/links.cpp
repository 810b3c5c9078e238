#include "formats/folder/links.hpp"

#include <cerrno>
#include <cstddef>

#include <tenfold/error.hpp>

#include "formats/folder/files.hpp"
#include "formats/folder/keys.hpp"

namespace tenfold::detail::formats::folder {

namespace {

bool has_parent_node(const os::Directory& folder) {
  try {
    return folder.open_parent().entry_info(std::string(kMetaName)).has_value();
  } catch (const Error&) {
    return false;  // No permission to look.
  }
}

}  // namespace

void LinkGuard::require_own(const os::Directory& folder, const std::string& name) {
  const auto found = folder.entry_info(name);
  if (!found || !found->is_regular || found->num_links < 2) return;
  const std::lock_guard lock(mutex_);
  if (!names_) {
    // A node may share with other nodes of its tree.
    os::Directory top = root_.duplicate();
    for (std::size_t depth = 0; depth < Folder::kMaxDepth; ++depth) {
      if (!has_parent_node(top)) break;
      top = top.open_parent();
    }
    count(top, 0, names_.emplace());
  }
  const auto own = names_->find({found->device, found->inode});
  const std::uint64_t own_names = own == names_->end() ? 0 : own->second;
  if (own_names >= found->num_links) return;
  const std::string display = folder.display_of(name);
  throw Error::io(EACCES, display,
                  display +
                      ": it cannot be written in place: expected a file of this tree alone, "
                      "found " +
                      std::to_string(found->num_links - own_names) +
                      " more name(s) of it elsewhere: steps of a checkpoint directory share "
                      "unchanged files; export makes a copy to write into");
}

void LinkGuard::count(const os::Directory& folder, std::size_t depth, Names& names) {
  if (depth > Folder::kMaxDepth) return;
  for (const std::string& name : folder.list()) {
    const auto found = folder.entry_info(name);
    if (!found) continue;
    if (found->is_directory) {
      const os::Directory inner = os::Directory::try_open_at(folder, name);
      if (inner.valid()) count(inner, depth + 1, names);
    } else if (found->num_links > 1) {
      ++names[{found->device, found->inode}];
    }
  }
}

}  // namespace tenfold::detail::formats::folder
