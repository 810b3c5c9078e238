#include "formats/folder/append/append.hpp"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/special.hpp"
#include "core/tree/node.hpp"
#include "core/value/value_json.hpp"
#include "formats/folder/append/commit_file.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/links.hpp"
#include "formats/folder/meta/meta.hpp"
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

/// Number of files open at once.
constexpr std::size_t kOpenFiles = 64;

Error refuse(const base::Where& where) { return base::invalid_argument(where); }

/// A tensor to append to.
struct AppendedLeaf {
  Path file;
  Leaf rows;
  std::uint64_t old_bytes = 0;
};

/// One of several tensors that share a file.
struct TiedLeaf {
  os::FileInfo file;
  Leaf rows;
  base::Where where;
};

bool same_rows(const Leaf& a, const Leaf& b) {
  const Tensor left = a.tensor().contiguous();
  const Tensor right = b.tensor().contiguous();
  return left.nbytes() == right.nbytes() &&
         std::equal(left.raw_data(), left.raw_data() + left.nbytes(), right.raw_data());
}

/// A meta.json whose lengths are increased.
struct GrowingMeta {
  Path file;
  std::string text;
};

Value* member(Value& object, std::string_view key) {
  for (auto& [name, value] : std::get<Value::Object>(object.data()).members) {
    if (name == key) return &value;
  }
  return nullptr;
}

/// Increases the first length of a `shape`.
void grow_shape(Value* shape, std::int64_t rows) {
  auto& lengths = std::get<Value::List>(shape->data()).items;
  lengths.front() = Value(std::get<std::int64_t>(lengths.front().data()) + rows);
}

/// Compares the rows with a saved tree and collects the changes.
class Appender {
 public:
  explicit Appender(std::int64_t num_rows) : num_rows_(num_rows) {}

  void visit(const Path& folder, const TensorDict& rows, const std::string& path);
  void run();

 private:
  void visit_leaf(const Path& folder, const MetaEntry& entry, const Leaf& rows,
                  const base::Where& where);
  void write_rows();
  void require_free_space(std::uint64_t new_bytes) const;
  void give_back() const noexcept;
  bool is_tied_to_another(const os::FileInfo& file, const Leaf& rows, const base::Where& where);
  void check_keys(const NodeMeta& meta, const TensorDict& rows, const base::Where& where) const;

  std::int64_t num_rows_;
  std::vector<AppendedLeaf> leaves_;
  std::vector<TiedLeaf> tied_;
  std::vector<GrowingMeta> metas_;  ///< parents before children
};

void Appender::check_keys(const NodeMeta& meta, const TensorDict& rows,
                          const base::Where& where) const {
  for (const MetaEntry& entry : meta.entries) {
    if (!has_key(rows, entry.key)) {
      throw refuse(where)
          .part("key ", base::quote(entry.key))
          .expected("an entry of this key in the rows")
          .found("none");
    }
  }
  if (rows.size() == meta.entries.size()) return;
  for (const std::string& key : rows.keys()) {
    const bool known = std::any_of(meta.entries.begin(), meta.entries.end(),
                                   [&](const MetaEntry& entry) { return entry.key == key; });
    if (!known) {
      throw refuse(where)
          .part("key ", base::quote(key))
          .expected("only keys of the saved tree in the rows")
          .found("another one");
    }
  }
}

void Appender::visit_leaf(const Path& folder, const MetaEntry& entry, const Leaf& rows,
                          const base::Where& where) {
  if (entry.is_nested || rows.is_nested()) {
    throw refuse(where).problem("nested tensors cannot be appended to").expected("a dense tensor");
  }
  const Shape& saved = entry.shape;
  const bool fits =
      !saved.empty() && !rows.shape().empty() && rows.shape().front() == num_rows_ &&
      std::equal(saved.begin() + 1, saved.end(), rows.shape().begin() + 1, rows.shape().end());
  if (!fits || rows.dtype() != entry.dtype) {
    Shape expected = saved;
    if (!expected.empty()) expected.front() = num_rows_;
    throw refuse(where)
        .part("rows to append")
        .expected(to_string(entry.dtype), " ", base::list_text(expected))
        .found(to_string(rows.dtype()), " ", base::list_text(rows.shape()));
  }
  if (rows.nbytes() == 0) return;
  const os::Directory directory = os::Directory::open(folder);
  std::string file = encode_key(entry.key) + std::string(kLeafSuffix);
  if (!directory.entry_info(file) && is_safe_raw_leaf(entry.key)) {
    const std::string raw = entry.key + std::string(kLeafSuffix);
    if (directory.entry_info(raw)) file = raw;
  }
  const auto found = directory.entry_info(file);
  const std::uint64_t found_bytes = found ? found->size_bytes : 0;
  if (found_bytes < entry.size_bytes) {
    throw base::corrupt(directory.display_of(file))
        .part("tensor ", base::quote(entry.key))
        .problem("the file is too short")
        .expected(entry.size_bytes, " bytes")
        .found(found_bytes)
        .remedy("it may be truncated");
  }
  if (found && found->num_links > 1 && is_tied_to_another(*found, rows, where)) return;
  leaves_.push_back({folder / file, rows, entry.size_bytes});
}

/// True if these rows are already appended under another key. Aliases share one file, so appending
/// to one appends to all.
bool Appender::is_tied_to_another(const os::FileInfo& file, const Leaf& rows,
                                  const base::Where& where) {
  for (const TiedLeaf& other : tied_) {
    if (!file.same_file(other.file)) continue;
    if (same_rows(other.rows, rows)) return true;
    throw refuse(where)
        .problem("tied to another tensor, ", other.where.text())
        .expected("the same rows for both")
        .found("others")
        .remedy("save the whole tree again without shared storage");
  }
  tied_.push_back({file, rows, where});
  return false;
}

void Appender::visit(const Path& folder, const TensorDict& rows, const std::string& path) {
  const os::Directory directory = os::Directory::open(folder);
  const os::File file = os::File::open_read_at(directory, std::string(kMetaName));
  const std::string text = file.read_all(kMaxMetaBytes);
  const NodeMeta meta = parse_meta(text, file.display());
  const base::Where where(folder.string(), path.empty() ? "" : "key " + base::quote(path));
  if (meta.kind == MetaKind::unknown && !meta.has_shape) {
    visit(folder / std::string(kInnerName), rows, path);
    return;
  }
  if (meta.kind != MetaKind::tensordict && meta.kind != MetaKind::unknown) {
    throw refuse(where)
        .problem("only nodes of tensors can be appended to")
        .expected("a TensorDict")
        .found("a ", meta.type);
  }
  const Shape& batch = rows.info().batch_size;
  const bool fits = !meta.batch_size.empty() && !batch.empty() && batch.front() == num_rows_ &&
                    std::equal(meta.batch_size.begin() + 1, meta.batch_size.end(),
                               batch.begin() + 1, batch.end());
  if (!fits) {
    Shape expected = meta.batch_size;
    if (!expected.empty()) expected.front() = num_rows_;
    throw refuse(where)
        .part("batch size of the rows")
        .expected(base::list_text(expected))
        .found(base::list_text(batch));
  }
  check_keys(meta, rows, where);
  Value document = from_json(text, file.display());
  grow_shape(member(document, "shape"), num_rows_);
  std::vector<std::pair<Path, const MetaEntry*>> below;
  for (const MetaEntry& entry : meta.entries) {
    const std::string child = path.empty() ? entry.key : path + "." + entry.key;
    const base::Where child_where(folder.string(), "key " + base::quote(child));
    if (entry.problem) {
      throw Error(*entry.problem).code(ErrorCode::invalid_argument).path(file.display());
    }
    const TensorDict::Item item = rows.get(entry.key);
    if (!entry.is_node) {
      const auto* leaf = std::get_if<Leaf>(&item);
      if (leaf == nullptr) throw refuse(child_where).expected("a tensor in the rows").found("none");
      visit_leaf(folder, entry, *leaf, child_where);
      grow_shape(member(*member(document, entry.key), "shape"), num_rows_);
    }
  }
  metas_.push_back({folder / std::string(kMetaName), to_json(document)});
  for (const MetaEntry& entry : meta.entries) {
    if (!entry.is_node) continue;
    const TensorDict::Item item = rows.get(entry.key);
    const std::string child = path.empty() ? entry.key : path + "." + entry.key;
    if (const auto* node = std::get_if<TensorDict>(&item)) {
      visit(folder / encode_key(entry.key), *node, child);
    } else if (!std::holds_alternative<NonTensor>(item) || std::get<NonTensor>(item).is_stack) {
      throw refuse(folder.string() + ": key " + base::quote(child))
          .expected("a node or one value in the rows")
          .found("a tensor or a stack of values");
    }
  }
}

void Appender::require_free_space(std::uint64_t new_bytes) const {
  if (new_bytes <= os::kUncheckedBytes) return;
  for (const AppendedLeaf& leaf : leaves_) {
    if (!os::exists(leaf.file)) continue;
    // Overwrite what a crashed append left after the committed end.
    const std::uint64_t there = os::file_info(leaf.file).size_bytes;
    new_bytes -= std::min(leaf.rows.nbytes(), std::max(there, leaf.old_bytes) - leaf.old_bytes);
  }
  const os::Parent parent = os::open_parent(leaves_.front().file, false);
  os::require_free_space(parent.directory.fd(), parent.directory.display(), new_bytes);
}

void Appender::write_rows() {
  std::uint64_t total_bytes = 0;
  for (const AppendedLeaf& leaf : leaves_) total_bytes += leaf.rows.nbytes();
  require_free_space(total_bytes);
  Progress progress(nullptr, total_bytes, "append");
  for (std::size_t i = 0; i < leaves_.size(); i += kOpenFiles) {
    const auto some = std::span(leaves_).subspan(i, std::min(kOpenFiles, leaves_.size() - i));
    std::deque<os::File> files;
    std::vector<LeafWrite> writes;
    for (const AppendedLeaf& leaf : some) {
      os::Parent parent = os::open_parent(leaf.file, false);
      files.push_back(parent.directory.entry_info(parent.name)
                          ? os::File::open_read_write_at(parent.directory, parent.name)
                          : os::File::create_at(parent.directory, parent.name));
      LeafWrite write;
      write.leaf = &leaf.rows;
      write.file = &files.back();
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
    for (const GrowingMeta& meta : metas_) {
      replace_file(meta.file, meta.text, false);
      is_committed = true;
    }
  } catch (const Error&) {
    if (!is_committed) give_back();
    throw;
  }
}

/// Truncates the files to the size in their metadata: on a full disk, the next append needs the
/// space.
void Appender::give_back() const noexcept {
  for (const AppendedLeaf& leaf : leaves_) {
    try {
      if (!os::exists(leaf.file)) continue;
      os::File file = os::File::open_read_write(leaf.file);
      if (file.size_bytes() > leaf.old_bytes) file.truncate(leaf.old_bytes);
    } catch (const Error&) {
      continue;  // bytes after the committed end are ignored by readers
    }
  }
}

}  // namespace

void append_rows(const Path& path, const TensorDict& rows) {
  const os::Directory directory = os::Directory::open(path);
  const std::string meta_name(kMetaName);
  refuse_growing(directory);
  os::File lock = os::File::try_open_read_at(directory, meta_name);
  if (!lock.valid()) {
    throw base::file_not_found(path.string())
        .part(meta_name)
        .expected("a saved tree")
        .found("none");
  }
  const auto held = os::WriterLock::try_acquire(directory, meta_name, lock);
  // The previous holder of the lock may have replaced the file.
  const auto now = directory.entry_info(meta_name);
  if (!held || !now || !now->same_file(lock.info())) {
    throw Error::io(EBUSY, path.string())
        .problem("rows are being appended")
        .expected("one writer at a time");
  }
  const Shape& batch = rows.info().batch_size;
  if (batch.empty()) {
    throw refuse(path.string())
        .part("batch size of the rows")
        .expected("at least one dimension")
        .found("[]");
  }
  refuse_shared_files(directory);
  Appender appender(batch.front());
  appender.visit(path, rows, "");
  appender.run();
  os::Directory root = directory.duplicate();
  if (root.entry_info(std::string(kChecksumsName))) root.remove_file(std::string(kChecksumsName));
}

namespace {

std::string key_part(std::string_view key) { return "key " + base::quote(key); }

/// The meta.json of one node, locked against other writers in this process and others, and the
/// members to add.
class MetaEdit {
 public:
  explicit MetaEdit(const Path& folder)
      : path_(folder / std::string(kMetaName)), directory_(os::Directory::open(folder)) {
    refuse_growing(directory_);
    constexpr int kMaxAttempts = 1000;
    for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
      file_ = os::File::open_read_at(directory_, std::string(kMetaName));
      lock_ = os::WriterLock::try_acquire(directory_, std::string(kMetaName), file_);
      // The previous holder of the lock may have replaced the file.
      const auto now = directory_.entry_info(std::string(kMetaName));
      if (lock_ && now && now->same_file(file_.info())) {
        text_ = file_.read_all(kMaxMetaBytes);
        meta_ = parse_meta(text_, path_.string());
        return;
      }
    }
    throw Error::io(EBUSY, path_.string())
        .problem("the folder is being changed")
        .expected("no other writer");
  }

  const NodeMeta& meta() const noexcept { return meta_; }
  os::Directory& directory() noexcept { return directory_; }

  /// Throws Error(invalid_argument) for a key that cannot be added to this node in this way.
  void check_new(std::string_view key, const std::string& name, std::string_view suffix) const {
    const base::Where where(directory_.display(), key_part(key));
    if (meta_.kind != MetaKind::tensordict) {
      throw base::invalid_argument(where)
          .expected("the folder of a TensorDict")
          .found("a ", meta_.type);
    }
    for (const MetaEntry& entry : meta_.entries) {
      if (entry.key == key) {
        throw base::invalid_argument(directory_.display())
            .problem(key_part(key), " already exists within the target tensordict")
            .expected("a new key");
      }
      if (entry.is_node == suffix.empty() && encode_key(entry.key) != name) continue;
      const std::string taken =
          encode_key(entry.key) + std::string(entry.is_node ? "" : kLeafSuffix);
      if (taken == name + std::string(suffix)) {
        throw base::invalid_argument(where)
            .problem("its file has the name of ", key_part(entry.key))
            .expected("another name")
            .remedy("save the whole tree again, which keeps both");
      }
    }
    if (is_reserved_key(key)) {
      throw base::invalid_argument(where)
          .problem("tensordict's metadata uses this key itself")
          .expected("another one")
          .remedy("save the whole tree again, which keeps it");
    }
    if (name.size() + suffix.size() > kMaxNameBytes) {
      throw base::invalid_argument(where)
          .problem("name of its file too long")
          .expected("at most ", kMaxNameBytes, " bytes")
          .found(name.size() + suffix.size());
    }
  }

  /// Adds `"key": entry` as the last member; the others stay unchanged, byte for byte.
  void add(std::string_view key, const Value::Object& entry) {
    const std::size_t brace = text_.rfind('}');
    const std::string member = to_json(Value(std::string(key))) + ": " + to_json(Value(entry));
    // A node's meta.json has at least its `_type`, so there is a preceding member.
    text_.insert(brace, ", " + member);
    replace_file(path_, text_, false);
  }

 private:
  Path path_;
  os::Directory directory_;
  os::File file_;
  std::optional<os::WriterLock> lock_;
  std::string text_;
  NodeMeta meta_;
};

std::string name_of(std::string_view key, bool is_leaf, bool robust) {
  if (robust) return encode_key(key);
  if (is_leaf ? is_safe_raw_leaf(key) : is_safe_raw_node(key)) return std::string(key);
  throw base::invalid_argument()
      .part(key_part(key))
      .problem("No such file or directory")
      .expected("a key that is a file name without encoding")
      .found("one that is none")
      .remedy("the option robust_key encodes it");
}

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

std::uint64_t data_bytes(const NewLeaf& leaf) {
  if (leaf.sizes == nullptr) return nbytes_of(leaf.dtype, leaf.shape);
  std::int64_t count = 0;
  const auto lengths = leaf.sizes->span<std::int64_t>();
  const auto width = static_cast<std::size_t>(leaf.sizes->shape().at(1));
  for (std::size_t row = 0; width > 0 && row < lengths.size(); row += width) {
    count += numel_of(Shape(lengths.begin() + static_cast<std::ptrdiff_t>(row),
                            lengths.begin() + static_cast<std::ptrdiff_t>(row + width)));
  }
  return nbytes_of(leaf.dtype, {count});
}

/// Creates the file, or takes an existing one, and extends it to `size_bytes`.
void make_file(const os::Directory& folder, const std::string& name, std::uint64_t size_bytes,
               bool existing_ok, std::span<const std::byte> bytes) {
  os::File file;
  if (folder.entry_info(name)) {
    if (!existing_ok) {
      const std::string display = folder.display_of(name);
      throw Error::io(EEXIST, display)
          .problem("the file already exists")
          .expected("none")
          .remedy("the option existsok takes it");
    }
    file = os::File::open_read_write_at(folder, name);
  } else {
    file = os::File::create_at(folder, name);
  }
  if (file.size_bytes() < size_bytes) file.truncate(size_bytes);
  if (!bytes.empty()) file.write_at(0, bytes);
  file.close_written();
}

}  // namespace

Path add_leaf(const Path& folder, const NewLeaf& leaf) {
  MetaEdit edit(folder);
  const std::string stem = name_of(leaf.key, true, leaf.robust_names);
  const std::string name = stem + std::string(kLeafSuffix);
  edit.check_new(leaf.key, stem, leaf.sizes == nullptr ? kLeafSuffix : kSizesSuffix);
  const std::uint64_t size_bytes = data_bytes(leaf);
  if (size_bytes > 0) make_file(edit.directory(), name, size_bytes, leaf.existing_ok, {});
  if (leaf.sizes != nullptr && leaf.sizes->numel() > 0) {
    const auto lengths = std::as_bytes(leaf.sizes->span<std::int64_t>());
    make_file(edit.directory(), stem + std::string(kSizesSuffix), lengths.size(), leaf.existing_ok,
              lengths);
  }
  edit.add(leaf.key, leaf_entry(leaf));
  return folder / name;
}

Path add_node(const Path& folder, std::string_view key, const Shape& batch_size,
              bool robust_names) {
  MetaEdit edit(folder);
  const std::string name = name_of(key, false, robust_names);
  edit.check_new(key, name, "");
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

void write_value(const Path& folder, const NonTensor& value) {
  // The notes are not rewritten, so the type of an extended scalar would be lost.
  if (has_special(value.value)) {
    throw base::unsupported(folder.string())
        .problem("a value in place")
        .expected("JSON")
        .found(value.value.type_name())
        .remedy("save the whole tree again, which keeps it");
  }
  const std::string text = non_tensor_meta(value);
  const MetaEdit edit(folder);
  if (edit.meta().kind != MetaKind::non_tensor && edit.meta().kind != MetaKind::non_tensor_stack) {
    throw base::invalid_argument(folder.string())
        .expected("the folder of a value")
        .found("a ", edit.meta().type);
  }
  replace_file(folder / std::string(kMetaName), text, false);
}

}  // namespace tenfold::detail::formats::folder
