// tensordict's memory-mapped folder: one meta.json a node, one file a tensor. See
// https://pytorch.org/tensordict ("The on-disk format"); what it cannot say is in `%notes.json`.

#include <string>
#include <utility>

#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "formats/folder/checksums.hpp"
#include "formats/folder/handle.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/lock.hpp"
#include "formats/folder/plan.hpp"
#include "formats/folder/reader.hpp"
#include "formats/folder/verify.hpp"
#include "formats/folder/writer.hpp"
#include "formats/format.hpp"
#include "formats/shared/commit.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {
namespace {

bool has_meta(const os::Directory& folder) {
  const auto meta = folder.entry_info(std::string(kMetaName));
  return meta && meta->is_regular;
}

bool probe_folder(const Path& path) {
  return os::file_info(path).is_directory && has_meta(os::Directory::open(path));
}

TensorDict open_folder(const Path& path, const OpenRequest& request) {
  if (request.mode != Mode::write_through) {
    return open_tree(os::Directory::open(path), path, request.mode);
  }
  WriteThroughLock lock = lock_for_writing_through(path);
  const os::Directory same = lock.folder.duplicate();
  TensorDict tree = open_tree(
      FolderHandle::root(std::move(lock.folder), path, std::move(lock.above)), request.mode);
  drop_leaf_checksums(same, path);
  return tree;
}

void check_folder(const TensorDict& tree) { static_cast<void>(plan_tree(tree)); }

void write_folder(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  const Plan plan = plan_tree(tree, {.notes = request.notes ? NotesUse::all : NotesUse::none});
  require_replaceable(path);
  warn_of_unloadable(plan, path);
  FolderReplacement replacement(path, written_bytes(plan, request), foreign_in);
  write_plan(plan, replacement.folder(), request);
  replacement.publish(request.durable);
}

}  // namespace

const Format kFormat = {"memmap",     {},           probe_folder,  open_folder,
                        check_folder, write_folder, verify_folder, true};

}  // namespace tenfold::detail::formats::folder
