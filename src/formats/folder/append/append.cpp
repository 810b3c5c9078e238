#include "formats/folder/append/append.hpp"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <limits>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tree/node.hpp"
#include "formats/folder/append/commit_file.hpp"
#include "formats/folder/checksums.hpp"
#include "formats/folder/files.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/links.hpp"
#include "formats/folder/meta/lengths.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/folder/write_through_lock.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/fs/free_space.hpp"
#include "os/fs/lease.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// Maximum number of files that are open at once.
constexpr std::size_t kOpenFiles = 64;

/// A tensor to append to.
struct AppendedLeaf {
  Path file;
  Leaf rows;
  os::FileInfo found;           ///< about the file; default values if there is no file
  base::Where where;            ///< for messages
  std::uint64_t old_bytes = 0;  ///< offset at which the rows are written
  /// Size according to the node's meta.json. It is more than `old_bytes` after an append that
  /// crashed before it replaced the root's meta.json.
  std::uint64_t kept_bytes = 0;
};

bool same_rows(const Leaf& a, const Leaf& b) {
  const Tensor left = a.tensor().contiguous();
  const Tensor right = b.tensor().contiguous();
  return left.nbytes() == right.nbytes() &&
         std::equal(left.raw_data(), left.raw_data() + left.nbytes(), right.raw_data());
}

/// Returns the name of an entry's file or folder: the encoded key and the suffix. If `may_be_raw`,
/// and only a file or folder with the unencoded name exists, returns that name: tensordict before
/// 0.14, or with robust_key=False, did not encode keys. A name that is the encoded name of another
/// key of the node does not count as the unencoded name.
std::string name_in(const os::Directory& folder, const NodeMeta& meta, const std::string& key,
                    std::string_view suffix, bool may_be_raw) {
  const auto exists = [&](const std::string& name) {
    return name.size() <= os::kMaxNameBytes && folder.entry_info(name).has_value();
  };
  std::string encoded = encode_key(key) + std::string(suffix);
  std::string raw = key + std::string(suffix);
  if (!may_be_raw || exists(encoded) || !exists(raw)) return encoded;
  const auto other = decode_key(key);
  const bool is_of_another =
      other && std::ranges::find(meta.entries, *other, &MetaEntry::key) != meta.entries.end();
  return is_of_another ? encoded : raw;
}

/// A meta.json and its new text, which counts the appended rows.
struct GrowingMeta {
  Path file;
  std::string text;
};

/// Appends rows to all tensors of a saved tree. visit() checks the rows and collects the changes,
/// run() writes them.
class Appender {
 public:
  Appender(std::int64_t num_rows, Notes notes) : num_rows_(num_rows), notes_(std::move(notes)) {}

  /// Visits the saved node in `directory`, whose path is `folder`, and its child nodes. `rows`: the
  /// rows to append to the node. `path`: the keys from the root to the node, joined by ".", for
  /// messages. `notes_path`: the path of the node as in notes (core/notes/notes.hpp). `depth`: the
  /// depth of `folder` below the root.
  void visit(const os::Directory& directory, const Path& folder, const TensorDict& rows,
             const std::string& path, const std::string& notes_path, std::size_t depth);
  /// Throws if the disk has no space for the new rows. Rows of at most os::kUncheckedBytes bytes in
  /// total are not checked.
  void require_free_space() const;
  void run();

 private:
  /// `child_note`: the note path of the entry (core/notes/notes.hpp).
  std::string name_of(const os::Directory& directory, const NodeMeta& meta, const MetaEntry& entry,
                      const std::string& child_note) const;
  void visit_leaf(const os::Directory& directory, const std::string& file, const Path& folder,
                  const NodeMeta& meta, const MetaEntry& entry, const Leaf& rows,
                  const base::Where& where);
  void write_rows();
  void truncate_uncommitted() const noexcept;
  bool is_linked_to_another(const AppendedLeaf& leaf);
  void check_keys(const NodeMeta& meta, const TensorDict& rows, const std::string& notes_path,
                  const base::Where& where) const;
  void refuse_hidden_keys(const NodeMeta& meta, const std::string& notes_path,
                          const base::Where& where) const;

  std::int64_t num_rows_;
  Notes notes_;
  std::vector<AppendedLeaf> leaves_;
  std::vector<GrowingMeta> metas_;  ///< parents before children
  /// The number of rows in the root's meta.json, which is replaced last. After a crash, nodes below
  /// the root may count more rows; the next append overwrites them.
  std::int64_t saved_rows_ = 0;
};

std::string Appender::name_of(const os::Directory& directory, const NodeMeta& meta,
                              const MetaEntry& entry, const std::string& child_note) const {
  const auto noted = notes_.files.find(child_note);
  if (noted != notes_.files.end() && is_clash_name(noted->second)) return noted->second;
  if (entry.is_node) return name_in(directory, meta, entry.key, "", is_safe_raw_node(entry.key));
  return name_in(directory, meta, entry.key, kLeafSuffix, is_safe_raw_leaf(entry.key));
}

/// Throws unless the rows have all keys in the meta.json of the saved node, and no others except
/// keys of its unbatched tensors. An append does not change unbatched tensors.
void Appender::check_keys(const NodeMeta& meta, const TensorDict& rows,
                          const std::string& notes_path, const base::Where& where) const {
  for (const MetaEntry& entry : meta.entries) {
    if (!has_key(rows, entry.key)) {
      throw base::invalid_argument(where)
          .part("key ", base::quote(entry.key))
          .expected("an entry of this key in the rows")
          .found("none");
    }
  }
  if (rows.size() == meta.entries.size()) return;
  for (const std::string& key : rows.keys()) {
    const bool known = std::any_of(meta.entries.begin(), meta.entries.end(),
                                   [&](const MetaEntry& entry) { return entry.key == key; });
    if (known) continue;
    const bool is_saved_unbatched =
        std::ranges::find(notes_.unbatched, note_path_child(notes_path, key)) !=
        notes_.unbatched.end();
    const TensorDict::Item item = rows.get(key);
    const auto* leaf = std::get_if<Leaf>(&item);
    const bool is_unbatched = leaf != nullptr && leaf->is_unbatched();
    if (is_saved_unbatched && is_unbatched) continue;
    throw base::invalid_argument(where)
        .part("key ", base::quote(key))
        .expected(is_saved_unbatched ? "an unbatched tensor, as in the saved tree"
                                     : "only keys of the saved tree in the rows")
        .found(is_saved_unbatched ? "an entry that is not unbatched" : "a new key");
  }
}

/// Throws if the node has an entry with a key that meta.json reserves ("shape", "device", "_type").
/// Only the notes can list such an entry and its length, and an append does not change the notes.
void Appender::refuse_hidden_keys(const NodeMeta& meta, const std::string& notes_path,
                                  const base::Where& where) const {
  for (const auto& [key, position] : meta.reserved) {
    const std::string child = note_path_child(notes_path, key);
    if (!notes_.leaves.contains(child) && !notes_.files.contains(child)) continue;
    throw base::unsupported(where)
        .part("key ", base::quote(key))
        .problem("rows cannot be appended to it")
        .expected("another key")
        .found("one that tensordict's metadata uses itself")
        .remedy("rename the key and save the tree again");
  }
}

void Appender::visit_leaf(const os::Directory& directory, const std::string& file,
                          const Path& folder, const NodeMeta& meta, const MetaEntry& entry,
                          const Leaf& rows, const base::Where& where) {
  if (entry.is_nested || rows.is_nested()) {
    throw base::invalid_argument(where)
        .problem("nested tensors cannot be appended to")
        .expected("a dense tensor");
  }
  const Shape& saved = entry.shape;
  if (saved.empty()) {
    throw base::invalid_argument(where)
        .part("shape of the saved tensor")
        .expected("at least one dimension")
        .found("[]")
        .remedy("save the tensor with one element for each row");
  }
  if (saved.front() != meta.batch_size.front()) {
    throw base::invalid_argument(where)
        .part("shape of the saved tensor")
        .expected("a first dimension of ", meta.batch_size.front(), ", as in the batch size")
        .found(base::list_text(saved));
  }
  Shape expected = saved;
  expected.front() = num_rows_;
  if (rows.shape() != expected || rows.dtype() != entry.dtype) {
    throw base::invalid_argument(where)
        .part("rows to append")
        .expected(to_string(entry.dtype), " ", base::list_text(expected))
        .found(to_string(rows.dtype()), " ", base::list_text(rows.shape()));
  }
  if (rows.nbytes() == 0) return;
  const std::uint64_t saved_bytes = rows.nbytes() / static_cast<std::uint64_t>(num_rows_) *
                                    static_cast<std::uint64_t>(saved_rows_);
  const auto info = directory.entry_info(file);
  if (info && !info->is_regular) {
    throw base::corrupt(directory.display_of(file))
        .part("tensor ", base::quote(entry.key))
        .expected("a file")
        .found("a link, a folder or a special file");
  }
  const os::FileInfo found = info.value_or(os::FileInfo());
  if (found.size_bytes < saved_bytes) {
    throw base::corrupt(directory.display_of(file))
        .part("tensor ", base::quote(entry.key))
        .problem("the file is too short")
        .expected(saved_bytes, " bytes")
        .found(found.size_bytes)
        .remedy("it may be truncated");
  }
  AppendedLeaf leaf{folder / file, rows, found, where, saved_bytes, entry.size_bytes};
  if (!is_linked_to_another(leaf)) leaves_.push_back(std::move(leaf));
}

/// Returns true if an earlier leaf has the same file, and the same rows to append. Tensors whose
/// files are hard links share their bytes, so appending to one appends to all. Throws if the file
/// is the same but the rows differ.
bool Appender::is_linked_to_another(const AppendedLeaf& leaf) {
  if (leaf.found.num_links <= 1) return false;
  for (AppendedLeaf& first : leaves_) {
    if (!first.found.same_file(leaf.found)) continue;
    first.kept_bytes = std::max(first.kept_bytes, leaf.kept_bytes);
    if (same_rows(first.rows, leaf.rows)) return true;
    throw base::invalid_argument(leaf.where)
        .problem("shares its file with another tensor, ", first.where.text())
        .expected("the same rows for both")
        .found("different rows")
        .remedy("save the whole tree again without shared storage");
  }
  return false;
}

void Appender::visit(const os::Directory& directory, const Path& folder, const TensorDict& rows,
                     const std::string& path, const std::string& notes_path, std::size_t depth) {
  if (depth > Folder::kMaxDepth) {
    throw base::unsupported(folder.string())
        .problem("nodes nested too deep")
        .expected("at most ", Folder::kMaxDepth, " levels");
  }
  const os::File file = os::File::open_read_at(directory, std::string(kMetaName));
  const std::string text = file.read_all(kMaxMetaBytes);
  const NodeMeta meta = parse_meta(text, file.display());
  const base::Where where(folder.string(), path.empty() ? "" : "key " + base::quote(path));
  if (meta.kind == MetaKind::unknown && !meta.has_shape) {
    const std::string inner(kInnerName);
    visit(os::Directory::open_at(directory, inner), folder / inner, rows, path, notes_path,
          depth + 1);
    return;
  }
  if (meta.kind != MetaKind::tensordict && meta.kind != MetaKind::unknown) {
    throw base::invalid_argument(where)
        .problem("only nodes of tensors can be appended to")
        .expected("a TensorDict")
        .found("a ", meta.type);
  }
  if (meta.batch_size.empty()) {
    throw base::invalid_argument(where)
        .part("saved batch size")
        .expected("at least one dimension")
        .found("[]")
        .remedy("save the tree with a batch size");
  }
  const Shape& batch = rows.info().batch_size;
  if (batch.empty()) {
    throw base::invalid_argument(where)
        .part("batch size of the rows")
        .expected("at least one dimension")
        .found("[]");
  }
  Shape expected = meta.batch_size;
  expected.front() = num_rows_;
  if (batch != expected) {
    throw base::invalid_argument(where)
        .part("batch size of the rows")
        .expected(base::list_text(expected))
        .found(base::list_text(batch));
  }
  refuse_hidden_keys(meta, notes_path, where);
  check_keys(meta, rows, notes_path, where);
  const std::int64_t node_rows = meta.batch_size.front();
  if (metas_.empty()) saved_rows_ = node_rows;
  if (node_rows < saved_rows_) {
    throw base::corrupt(file.display())
        .part("batch size")
        .expected("at least ", saved_rows_, " rows, as in the root")
        .found(node_rows);
  }
  if (num_rows_ > std::numeric_limits<std::int64_t>::max() - saved_rows_) {
    throw base::invalid_argument(where)
        .part("rows in all")
        .expected("fewer than 2^63")
        .found(saved_rows_, " and ", num_rows_, " more");
  }
  const auto new_rows = static_cast<std::uint64_t>(saved_rows_ + num_rows_);
  std::vector<LeafLength> lengths;
  for (const MetaEntry& entry : meta.entries) {
    const std::string child = path.empty() ? entry.key : path + "." + entry.key;
    const base::Where child_where(folder.string(), "key " + base::quote(child));
    if (entry.problem) {
      throw Error(*entry.problem).code(ErrorCode::invalid_argument).path(file.display());
    }
    const TensorDict::Item item = rows.get(entry.key);
    if (!entry.is_node) {
      const auto* leaf = std::get_if<Leaf>(&item);
      if (leaf == nullptr)
        throw base::invalid_argument(child_where)
            .expected("a tensor in the rows")
            .found("a node or a value");
      const std::string name =
          name_of(directory, meta, entry, note_path_child(notes_path, entry.key));
      visit_leaf(directory, name, folder, meta, entry, *leaf, child_where);
      lengths.push_back({entry.key, new_rows});
    }
  }
  metas_.push_back(
      {folder / std::string(kMetaName), with_lengths(text, file.display(), lengths, new_rows)});
  for (const MetaEntry& entry : meta.entries) {
    if (!entry.is_node) continue;
    const TensorDict::Item item = rows.get(entry.key);
    const std::string child = path.empty() ? entry.key : path + "." + entry.key;
    const std::string child_note = note_path_child(notes_path, entry.key);
    const std::string name = name_of(directory, meta, entry, child_note);
    const os::Directory below = os::Directory::open_at(directory, name);
    if (const auto* node = std::get_if<TensorDict>(&item)) {
      visit(below, folder / name, *node, child, child_note, depth + 1);
    } else if (!std::holds_alternative<NonTensor>(item) || std::get<NonTensor>(item).is_stack) {
      throw base::invalid_argument(folder.string() + ": key " + base::quote(child))
          .expected("a node or a single non-tensor value in the rows")
          .found("a tensor or a stack of values");
    } else {
      const os::File value = os::File::open_read_at(below, std::string(kMetaName));
      const NodeMeta saved = parse_meta(value.read_all(kMaxMetaBytes), value.display());
      if (saved.kind == MetaKind::non_tensor) continue;
      throw base::invalid_argument(folder.string() + ": key " + base::quote(child))
          .expected("a ", saved.type, " in the rows, as in the saved tree")
          .found("one value");
    }
  }
}

void Appender::require_free_space() const {
  std::uint64_t new_bytes = 0;
  for (const AppendedLeaf& leaf : leaves_) new_bytes += leaf.rows.nbytes();
  if (new_bytes <= os::kUncheckedBytes) return;
  for (const AppendedLeaf& leaf : leaves_) {
    // The new rows overwrite the bytes that a crashed append left after the committed end.
    new_bytes -= std::min(leaf.rows.nbytes(), leaf.found.size_bytes - leaf.old_bytes);
  }
  const os::Parent parent = os::open_parent(leaves_.front().file, false);
  os::require_free_space(parent.directory.fd(), parent.directory.display(), new_bytes);
}

void Appender::write_rows() {
  Progress progress(nullptr, 0, "append");
  for (std::size_t i = 0; i < leaves_.size(); i += kOpenFiles) {
    const auto some = std::span(leaves_).subspan(i, std::min(kOpenFiles, leaves_.size() - i));
    std::deque<os::File> files;
    std::vector<LeafWrite> writes;
    for (const AppendedLeaf& leaf : some) {
      os::Parent parent = os::open_parent(leaf.file, false);
      os::File& file =
          files.emplace_back(os::File::try_open_read_write_at(parent.directory, parent.name));
      if (!file.valid()) file = os::File::create_at(parent.directory, parent.name);
      LeafWrite write;
      write.leaf = &leaf.rows;
      write.file = &file;
      write.file_offset_bytes = leaf.old_bytes;
      write.size_bytes = leaf.rows.nbytes();
      writes.push_back(std::move(write));
    }
    write_leaves(writes, BlockChecksum::none, 0, progress);
    for (os::File& file : files) file.close_written();
  }
}

void Appender::run() {
  bool is_committed = false;
  try {
    write_rows();
    for (const GrowingMeta& meta : metas_ | std::views::reverse) {
      replace_file(meta.file, meta.text, false);
      is_committed = true;
    }
  } catch (const Error&) {
    if (!is_committed) truncate_uncommitted();
    throw;
  }
}

/// Truncates the files to the rows that meta.json counts, to free the space of the failed append.
void Appender::truncate_uncommitted() const noexcept {
  for (const AppendedLeaf& leaf : leaves_) {
    try {
      const os::Parent parent = os::open_parent(leaf.file, false);
      os::File file = os::File::try_open_read_write_at(parent.directory, parent.name);
      if (file.valid() && file.size_bytes() > leaf.kept_bytes) file.truncate(leaf.kept_bytes);
    } catch (const Error&) {
      continue;  // readers ignore bytes after the committed end
    }
  }
}

}  // namespace

void append_rows(const Path& path, const TensorDict& rows) {
  // Keeps saves from replacing the folder: otherwise, some rows might be written to the old folder
  // and some to the new one.
  const ScopedWriteThroughLock unreplaced(path);
  const os::Directory& directory = unreplaced.folder();
  const std::string meta_name(kMetaName);
  os::File lock = os::File::try_open_read_at(directory, meta_name);
  if (!lock.valid()) {
    throw base::file_not_found(path.string())
        .part(meta_name)
        .expected("a saved tree")
        .found("none");
  }
  const auto held = os::WriterLock::try_acquire_current(directory, meta_name, lock);
  if (!held) {
    throw Error::io(EBUSY, path.string())
        .problem("rows are being appended")
        .expected("one writer at a time");
  }
  // Check this under the lock, because a writer creates `%commit` under the same lock.
  refuse_growing(directory);
  refuse_shared_files(directory);
  Notes notes;
  const std::string notes_name(kNotesName);
  if (const os::File file = os::File::try_open_read_at(directory, notes_name); file.valid()) {
    notes = Notes::from_json(file.read_all(kMaxMetaBytes), file.display());
  }
  if (notes.schema && !notes.unbatched.empty()) {
    throw base::unsupported(path)
        .problem("append_memmap cannot append rows to this data set")
        .expected("columns with rows of fixed size")
        .found("a dictionary, or a data set with strings or ragged rows")
        .remedy("open it in mode \"r+\" with the class that wrote it, and add the rows there");
  }
  const Shape& batch = rows.info().batch_size;
  Appender appender(batch.empty() ? 0 : batch.front(), std::move(notes));
  appender.visit(directory, path, rows, "", "", 0);
  appender.require_free_space();
  // Remove the checksums first: after a crash, they would not match the changed files.
  drop_checksums_above(path);
  os::Directory root = directory.duplicate();
  if (root.entry_info(std::string(kChecksumsName))) {
    root.remove_file(std::string(kChecksumsName));
    root.sync();
  }
  appender.run();
}

}  // namespace tenfold::detail::formats::folder
