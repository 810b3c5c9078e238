#include "formats/folder/update.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tree/leaf_source.hpp"
#include "core/tree/node.hpp"
#include "core/value/value_json.hpp"
#include "formats/folder/append/commit_file.hpp"
#include "formats/folder/checksums.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/links.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/folder/write_through_lock.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/storable.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/fs/free_space.hpp"
#include "os/fs/holes.hpp"
#include "os/fs/lease.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// Maximum number of leaf files that are written at once.
constexpr std::size_t kOpenFiles = 64;
constexpr std::size_t kCopiedBytes = std::size_t{1} << 20;
/// Attempts to lock a meta.json, and the time between them.
constexpr int kMaxMetaAttempts = 10'000;
constexpr std::chrono::milliseconds kMetaPause{1};

[[noreturn]] void refuse_symlink(const std::string& display) {
  throw Error::io(ELOOP, display)
      .problem("refusing to write through symlink")
      .expected("a file or folder of the tree")
      .found("a link")
      .remedy("remove it first");
}

void refuse_other(const os::FileInfo& found, bool want_directory, const std::string& display) {
  const bool fits = want_directory ? found.is_directory : found.is_regular;
  if (fits) return;
  if (found.is_symlink) refuse_symlink(display);
  const int not_a_file = found.is_directory ? EISDIR : EEXIST;
  const char* not_a_folder = found.is_regular ? "a file" : "a special file";
  throw Error::io(want_directory ? ENOTDIR : not_a_file, display)
      .expected(want_directory ? "a folder or nothing" : "a file or nothing")
      .found(found.is_directory ? "a folder" : not_a_folder)
      .remedy("remove it first");
}

/// The planned folders, created if missing, and opened on demand.
class Folders {
 public:
  Folders(const Plan& plan, const Path& path) : plan_(plan) {
    os::Parent parent = os::open_parent(os::resolve_link(path), true);
    root_ = enter(parent.directory, parent.name);
    // If there is a `%commit`, a process may be adding rows. Even if no process does, a write in
    // place would keep the `%commit`, whose row count would then apply to the new tensors.
    refuse_growing(root_);
    for (std::size_t i = 1; i < plan.folders.size(); ++i) {
      os::Directory above = at(plan.folders[i].parent);
      enter(above, plan.folders[i].name);
    }
  }

  const os::Directory& root() const noexcept { return root_; }

  os::Directory at(std::size_t folder) const {
    if (folder == 0) return root_.duplicate();
    return os::Directory::open_at(at(plan_.folders[folder].parent), plan_.folders[folder].name);
  }

 private:
  static os::Directory enter(os::Directory& parent, const std::string& name) {
    if (const auto found = parent.entry_info(name)) {
      refuse_other(*found, true, parent.display_of(name));
    } else {
      parent.create_directory(name);
    }
    return os::Directory::open_at(parent, name);
  }

  const Plan& plan_;
  os::Directory root_;
};

enum class Write : std::uint8_t {
  replacement,  ///< a temporary file that then replaces the old file
  in_place,
  extension,  ///< in place; keeps the content, and only extends the file
};

/// Copies the data of `from`, but not its holes.
void copy_data(const os::File& from, os::File& into) {
  const std::uint64_t size_bytes = from.size_bytes();
  into.truncate(size_bytes);
  std::vector<std::byte> piece(
      static_cast<std::size_t>(std::min<std::uint64_t>(size_bytes, kCopiedBytes)));
  for (std::uint64_t at = os::next_data(from, 0); at < size_bytes; at = os::next_data(from, at)) {
    const std::size_t count = from.read_some_at(at, piece);
    if (count == 0) return;
    into.write_at(at, std::span(piece).first(count));
    at += count;
  }
}

/// A file to be written. A file with several hard links is never written in place, because its
/// other links are the files of other tensors.
class Target {
 public:
  Target(const os::Directory& folder, const std::string& name, Write how) {
    const auto found = folder.entry_info(name);
    if (found) refuse_other(*found, false, folder.display_of(name));
    const bool is_alias = found && found->num_links > 1;
    if (how == Write::replacement || is_alias) {
      replacement_.emplace(Path(folder.display_of(name)), 0);
      if (how == Write::extension) copy_data(os::File::open_read_at(folder, name), file());
    } else if (found) {
      file_ = os::File::open_read_write_at(folder, name);
    } else {
      file_ = os::File::create_at(folder, name);
    }
  }

  os::File& file() { return replacement_ ? replacement_->file() : file_; }

  void finish(bool durable) {
    if (replacement_) {
      replacement_->publish(durable);
    } else {
      if (durable) file_.sync();
      file_.close_written();
    }
  }

 private:
  std::optional<FileReplacement> replacement_;
  os::File file_;
};

/// A deque, because a Target cannot be moved.
using Targets = std::deque<Target>;

class Updater {
 public:
  Updater(const Plan& plan, const Path& path, const UpdateRequest& request)
      : plan_(plan),
        request_(request),
        folders_(plan, path),
        progress_(request.monitor, plan.leaf_bytes, "memmap") {
    if (request.in_place) {
      refuse_shared_files(folders_.root());
    } else {
      before_ = take_inventory(folders_.root());
    }
  }

  void run() {
    std::vector<std::size_t> leaves;
    std::vector<std::size_t> texts;
    for (std::size_t i = 0; i < plan_.files.size(); ++i) {
      const Plan::File& file = plan_.files[i];
      if (!file.is_leaf) {
        texts.push_back(i);
      } else if (!request_.is_kept || !request_.is_kept(file, plan_.path_of(file))) {
        leaves.push_back(i);
      }
    }
    for (std::size_t i = 0; i < leaves.size(); i += kOpenFiles) {
      write(std::span(leaves).subspan(i, std::min(kOpenFiles, leaves.size() - i)));
    }
    // A parent's metadata names its children, so write the metadata of children first.
    std::stable_sort(texts.begin(), texts.end(), [&](std::size_t a, std::size_t b) {
      return depth_of(plan_.files[a].folder) > depth_of(plan_.files[b].folder);
    });
    for (const std::size_t number : texts) write_text(plan_.files[number]);
    drop_stale();
    progress_.finish();
  }

 private:
  std::size_t depth_of(std::size_t folder) const {
    std::size_t depth = 0;
    for (; folder != 0; folder = plan_.folders[folder].parent) ++depth;
    return depth;
  }

  /// Throws unless there is space for these files in addition to the old ones. Checks nothing for
  /// writes in place, which mostly overwrite old files, and for zeros, which are sparse.
  void require_free_space(std::span<const std::size_t> numbers) const {
    if (request_.in_place || request_.zeros) return;
    std::uint64_t new_bytes = 0;
    for (const std::size_t number : numbers) new_bytes += plan_.files[number].size_bytes;
    const os::Directory& root = folders_.root();
    os::require_free_space(root.fd(), root.display(), new_bytes);
  }

  void write(std::span<const std::size_t> numbers) {
    require_free_space(numbers);
    Targets targets;
    std::vector<LeafWrite> writes;
    for (const std::size_t number : numbers) {
      const Plan::File& file = plan_.files[number];
      const bool is_zeros = request_.zeros && !file.is_sizes;
      const Write in_place = is_zeros ? Write::extension : Write::in_place;
      targets.emplace_back(folders_.at(file.folder), file.name,
                           request_.in_place ? in_place : Write::replacement);
      os::File& out = targets.back().file();
      if (is_zeros) {
        if (out.size_bytes() < file.size_bytes) out.truncate(file.size_bytes);
        continue;
      }
      LeafWrite write;
      write.leaf = &file.leaf;
      write.file = &out;
      write.size_bytes = file.size_bytes;
      writes.push_back(std::move(write));
    }
    write_leaves(writes, BlockChecksum::none, request_.num_threads, progress_, request_.durable);
    for (Target& target : targets) target.finish(request_.durable);
  }

  void write_text(const Plan::File& file) {
    const os::Directory folder = folders_.at(file.folder);
    if (const auto found = folder.entry_info(file.name)) {
      refuse_other(*found, false, folder.display_of(file.name));
      if (found->size_bytes == file.text.size()) {
        const os::File old = os::File::open_read_at(folder, file.name);
        if (old.read_all(file.text.size() + 1) == file.text) return;
      }
    }
    // Metadata is always replaced atomically, even if tensors are written in place.
    Target target(folder, file.name, Write::replacement);
    target.file().write_at(0, std::as_bytes(std::span(file.text)));
    target.finish(request_.durable);
  }

  /// Removes stale checksums, notes that are no longer needed and, unless tensors are written in
  /// place, the files and folders of the old tree that are not planned.
  void drop_stale() {
    std::unordered_set<std::string> planned;
    for (const Plan::File& file : plan_.files) planned.insert(plan_.path_of(file));
    os::Directory root = folders_.at(0);
    for (const std::string_view own : {kChecksumsName, kNotesName}) {
      const std::string name(own);
      if (!planned.contains(name) && root.entry_info(name)) root.remove_file(name);
    }
    for (std::size_t i = 1; i < plan_.folders.size(); ++i) planned.insert(path_of_folder(i));
    for (const auto* paths : {&before_.folders, &before_.files}) {
      for (const std::string& path : *paths) {
        // Temporary files stay, because other processes may still use them.
        const bool is_left = is_leftover(path.substr(path.rfind('/') + 1));
        if (!is_left && !planned.contains(path)) remove(root, path);
      }
    }
  }

  std::string path_of_folder(std::size_t folder) const {
    std::string path = plan_.folders[folder].name;
    for (std::size_t i = plan_.folders[folder].parent; i != 0; i = plan_.folders[i].parent) {
      path.insert(0, plan_.folders[i].name + "/");
    }
    return path;
  }

  static void remove(const os::Directory& root, const std::string& path) {
    os::Directory folder = root.duplicate();
    std::size_t begin = 0;
    for (std::size_t slash = path.find('/'); slash != std::string::npos;
         begin = slash + 1, slash = path.find('/', begin)) {
      folder = os::Directory::try_open_at(folder, path.substr(begin, slash - begin));
      if (!folder.valid()) return;  // removed together with its folder
    }
    folder.remove_tree(path.substr(begin));
  }

  const Plan& plan_;
  const UpdateRequest& request_;
  Folders folders_;
  Progress progress_;
  Inventory before_;
};

// --- one entry ---

/// Returns the key of the entry that is stored in the sub-folder `name` of the node at note path
/// `path`.
std::string key_of(const Notes& notes, const std::string& path, const std::string& name) {
  for (const auto& [entry, file] : notes.files) {
    const auto keys = keys_of_note_path(entry);
    if (file != name || !keys || keys->empty()) continue;
    if (note_path_child(path, keys->back()) == entry) return keys->back();
  }
  return decode_key(name).value_or(name);
}

/// True if `folder` is the sub-folder `_tensordict` of a tensorclass; false for a node with the key
/// "_tensordict".
bool is_inner(const Path& folder) {
  if (folder.filename() != kInnerName) return false;
  const os::Directory parent = os::Directory::open(folder.parent_path());
  const os::File file = os::File::try_open_read_at(parent, std::string(kMetaName));
  if (!file.valid()) return false;
  const NodeMeta meta = parse_meta(file.read_all(kMaxMetaBytes), file.display());
  return std::ranges::none_of(meta.entries, [](const MetaEntry& entry) {
    return entry.is_node && entry.key == kInnerName;
  });
}

/// Returns the notes of the tree that contains the node in `folder`, and the note path of this
/// node. The root of the tree is the first folder with notes, from `folder` upwards. The search
/// ends at a folder without meta.json: then returns empty notes and an empty path.
std::pair<Notes, std::string> notes_about(const Path& folder) {
  std::vector<std::string> names;  // from `folder` up to the root
  Path at = os::canonical(folder);
  for (; at.has_relative_path() && os::exists(at / std::string(kMetaName)); at = at.parent_path()) {
    const Path file = at / std::string(kNotesName);
    if (!os::exists(file)) {
      if (!is_inner(at)) names.push_back(at.filename().string());
      continue;
    }
    Notes notes =
        Notes::from_json(os::File::open_read(file).read_all(kMaxMetaBytes), file.string());
    std::string path;
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
      path = note_path_child(path, key_of(notes, path, *name));
    }
    return {std::move(notes), std::move(path)};
  }
  return {};
}

/// The meta.json of one node, locked against other MetaEdits and against appends, in this and other
/// processes.
class MetaEdit {
 public:
  explicit MetaEdit(const Path& folder)
      : path_(folder / std::string(kMetaName)),
        held_(folder),
        directory_(held_.folder().duplicate()) {
    for (int attempt = 0; attempt < kMaxMetaAttempts; ++attempt) {
      file_ = os::File::open_read_at(directory_, std::string(kMetaName));
      lock_ = os::WriterLock::try_acquire_current(directory_, std::string(kMetaName), file_);
      if (!lock_) {
        std::this_thread::sleep_for(kMetaPause);
        continue;
      }
      // Check this under the lock, because a writer creates `%commit` under the same lock.
      refuse_growing(directory_);
      text_ = file_.read_all(kMaxMetaBytes);
      meta_ = parse_meta(text_, path_.string());
      return;
    }
    throw Error::io(EBUSY, path_.string())
        .problem("another writer has locked it for 10 seconds")
        .expected("one writer at a time")
        .remedy("try again");
  }

  const NodeMeta& meta() const noexcept { return meta_; }
  os::Directory& directory() noexcept { return directory_; }

  /// Throws Error(invalid_argument) for a key that cannot be added to this node. `stem` is the name
  /// of the entry's folder, or of its file without the suffix: the encoded or unencoded key.
  void check_new(std::string_view key, const std::string& stem, bool is_node,
                 bool is_nested) const {
    std::vector<std::string> files = file_names(stem, is_node, is_nested);
    const std::size_t longest = files.back().size();
    const bool is_own = is_clash_name(stem) || is_own_name(files.front());
    const bool is_temporary = std::ranges::any_of(files, is_leftover);
    // Readers look for the encoded name first, so it must be free, too.
    const std::string encoded = encode_key(key);
    if (stem != encoded)
      std::ranges::move(file_names(encoded, is_node, is_nested), std::back_inserter(files));
    const base::Where where(directory_.display(), key_part(key));
    if (meta_.kind != MetaKind::tensordict) {
      throw base::invalid_argument(where)
          .expected("the folder of a TensorDict")
          .found("a ", meta_.type);
    }
    const auto exists_already = [&] {
      return base::invalid_argument(directory_.display())
          .problem(key_part(key), " already exists within the target tensordict")
          .expected("a new key");
    };
    if (is_unbatched(key)) throw exists_already();
    for (const MetaEntry& entry : meta_.entries) {
      if (entry.key == key) throw exists_already();
      if (std::ranges::find_first_of(files, taken_by(entry)) != files.end()) {
        throw base::invalid_argument(where)
            .problem("its file has the same name as that of ", key_part(entry.key))
            .expected("another name")
            .remedy("save the whole tree again, which can store both keys");
      }
    }
    if (is_own || is_temporary) {
      throw base::invalid_argument(where)
          .problem("its file has a name that tenfold uses itself")
          .expected("another name")
          .remedy(is_temporary
                      ? "save the whole tree again, which can store this key"
                      : "to encode the key, use the option robust_key (in C++: robust_names)");
    }
    require_utf8(key, [&] { return base::invalid_argument(where); });
    if (is_reserved_key(key)) {
      throw base::invalid_argument(where)
          .problem("tensordict's metadata uses this key itself")
          .expected("another key")
          .remedy("save the whole tree again, which can store this key");
    }
    if (longest > os::kMaxNameBytes) {
      throw base::invalid_argument(where)
          .problem("name of its file too long")
          .expected("at most ", os::kMaxNameBytes, " bytes")
          .found(longest)
          .remedy("save the whole tree again, which can store this key");
    }
  }

  /// Throws Error(invalid_argument) if the batch size would fit no tensor of the node, because
  /// readers refuse such a node.
  void check_batch(const NewLeaf& leaf) const {
    const auto fits = [&](const MetaEntry& entry) {
      return !entry.is_node && !entry.problem &&
             fits_batch(entry.shape, entry.is_nested, meta_.batch_size);
    };
    if (fits_batch(leaf.shape, leaf.sizes != nullptr, meta_.batch_size)) return;
    if (std::ranges::any_of(meta_.entries, fits)) return;
    require_batch(leaf.shape, meta_.batch_size, [&] {
      return base::invalid_argument(directory_.display()).part(key_part(leaf.key));
    });
  }

  /// Adds `"key": entry` as the last member; the text of the other members stays unchanged.
  void add(std::string_view key, const Value::Object& entry) {
    const std::size_t brace = text_.rfind('}');
    const std::string member = to_json(Value(std::string(key))) + ": " + to_json(Value(entry));
    // Every meta.json has a `_type` or a `_class`, so there is a preceding member.
    text_.insert(brace, ", " + member);
    replace(text_);
  }

  /// Replaces meta.json. First removes its checksums, which would become invalid.
  void replace(const std::string& text) const {
    check_meta_bytes(text.size(), path_);
    drop_checksums(directory_, path_.parent_path(),
                   [](std::string_view file) { return file == kMetaName; });
    replace_file(path_, text, false);
  }

 private:
  bool exists(const std::string& name) const {
    return name.size() <= os::kMaxNameBytes && directory_.entry_info(name).has_value();
  }

  /// True if the node has an unbatched tensor with this key. The notes and the meta.json in
  /// `%values` list such tensors; this meta.json does not.
  bool is_unbatched(std::string_view key) const {
    if (!exists(std::string(kValuesName))) return false;
    const auto [notes, path] = notes_about(path_.parent_path());
    return std::ranges::find(notes.unbatched, note_path_child(path, key)) != notes.unbatched.end();
  }

  /// Returns the names of files or folders under which readers look for an entry. Includes names
  /// with the unencoded key only if readers would use them.
  std::vector<std::string> taken_by(const MetaEntry& entry) const {
    std::vector<std::string> taken =
        file_names(encode_key(entry.key), entry.is_node, entry.is_nested);
    if (encode_key(entry.key) == entry.key || exists(taken.front())) return taken;
    if (!(entry.is_node ? is_safe_raw_node(entry.key) : is_safe_raw_leaf(entry.key))) return taken;
    std::vector<std::string> raw = file_names(entry.key, entry.is_node, entry.is_nested);
    if (exists(raw.front())) std::ranges::move(raw, std::back_inserter(taken));
    return taken;
  }

  Path path_;
  /// Keeps saves from replacing the folder: otherwise, replace() might write to the new folder.
  ScopedWriteThroughLock held_;
  os::Directory directory_;
  os::File file_;
  std::optional<os::WriterLock> lock_;
  std::string text_;
  NodeMeta meta_;
};

Value::Object leaf_entry(const NewLeaf& leaf) {
  Value::List lengths;
  for (const std::int64_t length : leaf.shape) lengths.items.emplace_back(length);
  Value::Object entry;
  entry.members.emplace_back("device", Value("cpu"));
  entry.members.emplace_back("shape", Value(std::move(lengths)));
  entry.members.emplace_back("dtype", Value("torch." + to_string(leaf.dtype)));
  entry.members.emplace_back("is_nested", Value(leaf.sizes != nullptr));
  return entry;
}

void check_sizes(const Path& folder, const NewLeaf& leaf) {
  const Shape& shape = leaf.sizes->shape();
  const auto fail = [&](const char* part) {
    return base::invalid_argument(folder.string()).part(key_part(leaf.key)).part(part);
  };
  if (leaf.sizes->dtype() != DType::int64 || shape.size() != 2) {
    throw fail("sizes")
        .expected("an int64 tensor of 2 dimensions")
        .found("a ", to_string(leaf.sizes->dtype()), " tensor of shape ", base::list_text(shape));
  }
  if (shape[1] == 0 && shape[0] > 0) {
    throw fail("sizes").expected("components of at least 1 dimension").found("0");
  }
  if (leaf.shape != shape) {
    throw fail("shape")
        .expected("that of the sizes, ", base::list_text(shape))
        .found(base::list_text(leaf.shape));
  }
}

std::uint64_t data_bytes(const NewLeaf& leaf) {
  if (leaf.sizes == nullptr) return nbytes_of(leaf.dtype, leaf.shape);
  const auto numel = nested_numel(*leaf.sizes);
  const auto bytes = numel ? base::checked_mul(*numel, itemsize(leaf.dtype)) : std::nullopt;
  if (bytes && *bytes <= std::numeric_limits<std::int64_t>::max()) return *bytes;
  throw base::invalid_argument()
      .part(key_part(leaf.key))
      .part("sizes")
      .expected("lengths of at least 0, and fewer than 2^63 bytes in total");
}

/// Creates the file, or opens an existing one if `existing_ok`, extends it to `size_bytes`, and
/// writes `bytes` at its start.
void make_file(const os::Directory& folder, const std::string& name, std::uint64_t size_bytes,
               bool existing_ok, std::span<const std::byte> bytes) {
  os::File file;
  if (folder.entry_info(name)) {
    if (!existing_ok) {
      const std::string display = folder.display_of(name);
      throw Error::io(EEXIST, display)
          .problem("the file already exists")
          .expected("none")
          .remedy("to allow existing files, use the option existsok (in C++: existing_ok)");
    }
    file = os::File::open_read_write_at(folder, name);
  } else {
    file = os::File::create_at(folder, name);
  }
  if (file.size_bytes() < size_bytes) file.truncate(size_bytes);
  if (!bytes.empty()) file.write_at(0, bytes);
  file.close_written();
}

/// Returns the name of the sub-folder that readers open for the entry `key` of the node in
/// `folder`.
std::string node_name(const Path& folder, std::string_view key) {
  const auto [notes, path] = notes_about(folder);
  const auto found = notes.files.find(note_path_child(path, key));
  if (found != notes.files.end() && is_clash_name(found->second)) return found->second;
  const std::string encoded = encode_key(key);
  const bool is_raw = is_safe_raw_node(key) && !os::exists(folder / encoded);
  return is_raw ? std::string(key) : encoded;
}

/// Returns the note of the value that is stored in `folder`; an empty one if there is none.
Notes::ValueNote note_of(const Path& folder) {
  const auto [notes, path] = notes_about(folder);
  const auto found = notes.values.find(path);
  return found == notes.values.end() ? Notes::ValueNote() : found->second;
}

/// Throws Error(unsupported) if `value` needs another note than the old value in `folder`, because
/// notes are not rewritten, or if `value` contains an extended scalar.
void require_same_note(const Path& folder, const Value& value) {
  const auto refuse = [&] {
    return base::unsupported(folder.string())
        .problem("a value cannot be changed in place")
        .remedy("save the whole tree again, which can store the new value");
  };
  const auto is_special = [](const Value& part) { return part.is<Value::Special>(); };
  if (const Value* special = find_in(value, is_special)) {
    throw refuse().expected("JSON").found(special->type_name());
  }
  Notes made;
  collect_value_note("", value, made);
  const Notes::ValueNote& note = made.values[""];
  const Notes::ValueNote old = note_of(folder);
  // If the old value has no note, tuples are stored as lists, and OrderedDicts as dicts, as
  // tensordict's memmap() does.
  const bool needs_note = !note.int_keys.empty() || !note.typed_keys.empty();
  if (old == note || (old.empty() && !needs_note)) return;
  throw refuse()
      .expected("the same types of keys, tuples and OrderedDicts as in the old value")
      .found("other types");
}

}  // namespace

void update_folder(const Plan& plan, const Path& path, const UpdateRequest& request) {
  Updater updater(plan, path, request);
  drop_checksums_above(path);
  updater.run();
}

std::string first_existing_leaf(const Plan& plan, const Path& path) {
  for (const Plan::File& file : plan.files) {
    const Path candidate = path / plan.path_of(file);
    if (file.is_leaf && os::exists(candidate)) return candidate.string();
  }
  return {};
}

Path add_leaf(const Path& folder, const NewLeaf& leaf) {
  if (leaf.sizes != nullptr) check_sizes(folder, leaf);
  MetaEdit edit(folder);
  const std::string stem = entry_name(leaf.key, true, leaf.robust_names, "");
  const std::string name = stem + std::string(kLeafSuffix);
  edit.check_new(leaf.key, stem, false, leaf.sizes != nullptr);
  edit.check_batch(leaf);
  const std::uint64_t size_bytes = data_bytes(leaf);
  if (size_bytes > 0) make_file(edit.directory(), name, size_bytes, leaf.existing_ok, {});
  if (leaf.sizes != nullptr && leaf.sizes->numel() > 0) {
    const auto lengths = std::as_bytes(leaf.sizes->span<std::int64_t>());
    make_file(edit.directory(), sizes_name(stem), lengths.size(), leaf.existing_ok, lengths);
  }
  edit.add(leaf.key, leaf_entry(leaf));
  return folder / name;
}

Path add_node(const Path& folder, std::string_view key, const Shape& batch_size,
              bool robust_names) {
  if (const auto fault = batch_size_fault(batch_size)) {
    throw Error(*fault)
        .code(ErrorCode::invalid_argument)
        .within("batch size")
        .within(key_part(key))
        .path(folder.string());
  }
  MetaEdit edit(folder);
  const std::string name = entry_name(key, false, robust_names, "");
  edit.check_new(key, name, true, false);
  if (const auto found = edit.directory().entry_info(name); !found) {
    edit.directory().create_directory(name);
  } else if (!found->is_directory) {
    const std::string display = edit.directory().display_of(name);
    throw Error::io(EEXIST, display).expected("a folder or nothing").found("a file");
  }
  NodeInfo info;
  info.batch_size = batch_size;
  const std::string text = tensordict_meta(info, {});
  replace_file(folder / name / std::string(kMetaName), text, false);
  Value::Object entry;
  entry.members.emplace_back("type", Value("TensorDict"));
  edit.add(key, entry);
  return folder / name;
}

void write_value(const Path& folder, std::string_view key, const NonTensor& value) {
  const std::string text = non_tensor_meta(value);
  const Path place = folder / node_name(folder, key);
  const MetaEdit edit(place);
  if (edit.meta().kind != MetaKind::non_tensor && edit.meta().kind != MetaKind::non_tensor_stack) {
    throw base::invalid_argument(place.string())
        .expected("the folder of a value")
        .found("a ", edit.meta().type);
  }
  require_same_note(place, value.value);
  edit.replace(text);
}

}  // namespace tenfold::detail::formats::folder
