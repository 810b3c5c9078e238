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

namespace tenfold {
namespace {

bool has_meta(const os::Directory& folder) {
  const auto meta = folder.entry_info(std::string(memmap_folder::kMetaName));
  return meta && meta->is_regular;
}

bool probe_folder(const Path& path) {
  return os::file_info(path).is_directory && has_meta(os::Directory::open(path));
}

TensorDict open_folder(const Path& path, const OpenRequest& request) {
  if (request.mode != Mode::write_through) {
    return memmap_folder::open_tree(os::Directory::open(path), path, request.mode);
  }
  memmap_folder::WriteThroughLock lock = memmap_folder::lock_for_writing_through(path);
  const os::Directory same = lock.folder.duplicate();
  TensorDict tree = memmap_folder::open_tree(
      memmap_folder::FolderHandle::root(std::move(lock.folder), path, std::move(lock.above)),
      request.mode);
  memmap_folder::drop_leaf_checksums(same, path);
  return tree;
}

void check_folder(const TensorDict& tree) { static_cast<void>(memmap_folder::plan_tree(tree)); }

void write_folder(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  using memmap_folder::NotesUse;
  const memmap_folder::Plan plan =
      memmap_folder::plan_tree(tree, {.notes = request.notes ? NotesUse::all : NotesUse::none});
  memmap_folder::require_replaceable(path);
  if (!plan.unloadable_by_upstream.empty()) {
    warn(path.string() + ": tensor " + base::quote(plan.unloadable_by_upstream) +
         ": tensordict 0.15.3 cannot load float8 and float4 from a folder; tenfold can, and the "
         "safetensors format is read by both");
  }
  FolderReplacement replacement(path, memmap_folder::written_bytes(plan, request),
                                memmap_folder::foreign_in);
  memmap_folder::write_plan(plan, replacement.folder(), request);
  replacement.publish(request.durable);
}

VerifyReport verify_folder(const Path& path, const VerifyRequest& request) {
  return memmap_folder::verify_folder(path, request);
}

}  // namespace

const Format kMemmapFolder = {"memmap",     {},           probe_folder,  open_folder,
                              check_folder, write_folder, verify_folder, true};

}  // namespace tenfold
