#include "io/memmap.hpp"

#include <cerrno>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/folder/append/append.hpp"
#include "formats/folder/checksums.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/plan.hpp"
#include "formats/folder/reader.hpp"
#include "formats/folder/update.hpp"
#include "formats/folder/writer.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "io/check_supported.hpp"
#include "io/tree.hpp"
#include "os/fs/file.hpp"
#include "os/fs/free_space.hpp"
#include "os/fs/unreplaced.hpp"
#include "os/memory/mapping.hpp"

namespace tenfold {

using namespace detail;
namespace folder = formats::folder;

void write_memmap(const TensorDict& tree, const Path& path, const MemmapOptions& options) {
  refuse_opaque(tree, path.string(), "");
  const folder::Plan plan = folder::plan_tree(
      tree, {.notes = folder::NotesUse::needed, .robust_names = options.robust_names});
  if (!options.existing_ok) {
    const std::string existing = folder::first_existing_leaf(plan, path);
    if (!existing.empty()) {
      throw Error::io(EEXIST, existing)
          .problem("the file already exists")
          .expected("no file")
          .remedy("to allow existing files, use the option existsok (in C++: existing_ok)");
    }
  }
  if (options.in_place || !options.already_mapped.empty()) {
    const std::unordered_set<std::string> there(options.already_mapped.begin(),
                                                options.already_mapped.end());
    folder::UpdateRequest request;
    request.in_place = options.in_place;
    request.zeros = options.zeros;
    request.durable = options.durable;
    request.num_threads = options.num_threads;
    request.monitor = options.monitor;
    request.is_kept = [&](const folder::Plan::File&, const std::string& file) {
      return there.contains(file);
    };
    folder::update_folder(plan, path, request);
    return;
  }
  folder::require_replaceable(path);
  const formats::WriteRequest request{.durable = options.durable,
                                      .checksums = false,
                                      .zeros = options.zeros,
                                      .num_threads = options.num_threads,
                                      .monitor = options.monitor};
  formats::FolderReplacement replacement(path, folder::written_bytes(plan, request),
                                         folder::foreign_in);
  folder::write_plan(plan, replacement.folder(), request);
  folder::publish_folder(replacement, options.durable);
}

namespace {

TensorDict open_memmap_once(const Path& path, Mode mode) {
  os::Directory root = os::Directory::open(path);
  const std::string meta_name(folder::kMetaName);
  if (!root.entry_info(meta_name)) {
    throw base::file_not_found(root.display_of(meta_name))
        .problem("file is missing")
        .expected("the folder of a TensorDict");
  }
  const os::Directory same = root.duplicate();
  TensorDict tree = folder::open_tree(std::move(root), path, mode);
  if (mode == Mode::write_through) folder::drop_leaf_checksums(same, path);
  return tree;
}

}  // namespace

TensorDict open_memmap(const Path& path, Mode mode) {
  formats::recover_folder(path);
  return os::read_unreplaced(path, [&] { return open_memmap_once(path, mode); });
}

namespace {

/// Alignment of leaves in bytes: sufficient for every dtype, and no two leaves share a cache line.
constexpr std::uint64_t kLeafAlignment = 64;

}  // namespace

TensorDict memmap_into(const TensorDict& tree, const Path& path, const MemmapOptions& options) {
  os::File file = os::File::open_read_write(path);
  std::vector<NamedLeaf> leaves = tensors_of(tree);
  std::vector<formats::LeafWrite> writes;
  std::uint64_t end = 0;
  for (const NamedLeaf& named : leaves) {
    formats::LeafWrite write;
    write.leaf = &named.leaf;
    write.file = &file;
    write.file_offset_bytes = base::align_up(end, kLeafAlignment);
    write.size_bytes = named.leaf.nbytes();
    end = write.file_offset_bytes + write.size_bytes;
    writes.push_back(std::move(write));
  }
  if (!options.zeros) {
    const std::uint64_t there = file.size_bytes();
    os::require_free_space(file.fd(), file.display(), end > there ? end - there : 0);
  }
  file.truncate(end);
  std::vector<std::uint64_t> offsets;
  for (const formats::LeafWrite& write : writes) offsets.push_back(write.file_offset_bytes);
  formats::Progress progress(options.monitor, end, "memmap");
  if (!options.zeros)
    formats::write_leaves(writes, formats::BlockChecksum::none, options.num_threads, progress);
  progress.finish();
  const Buffer whole = os::map_file(file, 0, end, os::MapKind::shared_write);
  std::size_t next = 0;
  return map_leaves(tree, [&](const Leaf& leaf) {
    const std::uint64_t offset = offsets[next++];
    const std::uint64_t size_bytes = leaf.nbytes();
    Buffer bytes = size_bytes == 0 ? Buffer() : whole.slice(offset, size_bytes);
    Leaf made = with_bytes(leaf, std::move(bytes));
    made.mark_grad(Grad::none);
    return made;
  });
}

Path add_memmap_leaf(const Path& folder_path, const NewLeaf& leaf) {
  return folder::add_leaf(folder_path, leaf);
}

Path add_memmap_node(const Path& folder_path, std::string_view key, const Shape& batch_size,
                     bool robust_names) {
  return folder::add_node(folder_path, key, batch_size, robust_names);
}

void write_memmap_value(const Path& folder_path, std::string_view key, const NonTensor& value) {
  folder::write_value(folder_path, key, value);
}

void append_memmap(const Path& path, const TensorDict& rows) { folder::append_rows(path, rows); }

TensorDict memmap(const TensorDict& tree, const Path& path, const MemmapOptions& options) {
  write_memmap(tree, path, options);
  return open_memmap(path);
}

}  // namespace tenfold
