// tensordict's memory-mapped folder: one meta.json per folder, one file per tensor (two for a
// nested tensor, none for one without elements). See https://pytorch.org/tensordict ("The on-disk
// format"). `%notes.json` stores what that format cannot express.

#include <string>
#include <utility>

#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "formats/folder/checksums.hpp"
#include "formats/folder/handle.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/plan.hpp"
#include "formats/folder/reader.hpp"
#include "formats/folder/verify.hpp"
#include "formats/folder/write_through_lock.hpp"
#include "formats/folder/writer.hpp"
#include "formats/format.hpp"
#include "formats/shared/commit.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {
namespace {

bool probe_folder(const FileHead& head) { return head.has_file(kMetaName); }

TensorDict open_folder(const FileHead& head, const OpenRequest& request) {
  const Path& path = head.path();
  if (request.mode != Mode::write_through) {
    return open_tree(head.take_folder(), path, request.mode);
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
  publish_folder(replacement, request.durable);
}

}  // namespace

const Format kFormat = {
    .name = "memmap",
    .noun = "a memory-mapped folder",
    .suffixes = {},
    .holds_sparse = true,
    .bare_roots = BareRoots::some,
    .is_writable_in_place = true,
    .holds_zeros = true,
    .probe = probe_folder,
    .open_tree = open_folder,
    .check_tree = check_folder,
    .write_tree = write_folder,
    .verify = verify_folder,
};

}  // namespace tenfold::detail::formats::folder
