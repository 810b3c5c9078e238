#include "formats/folder/append/grow.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "core/tensor/special.hpp"
#include "core/value/value_json.hpp"
#include "formats/folder/append/commit_file.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/shared/commit.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {
namespace {

std::string key_part(std::string_view key) { return "key " + base::quote(key); }

/// The meta.json of one node, locked against other writers of this process and others, with what is
/// to be added to it.
class MetaEdit {
 public:
  explicit MetaEdit(const Path& folder)
      : path_(folder / std::string(kMetaName)), directory_(os::Directory::open(folder)) {
    refuse_growing(directory_);
    constexpr int kMaxAttempts = 1000;
    for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
      file_ = os::File::open_read_at(directory_, std::string(kMetaName));
      lock_ = os::WriterLock::try_acquire(directory_, std::string(kMetaName), file_);
      // Whoever had it locked may have replaced it meanwhile.
      const auto now = directory_.entry_info(std::string(kMetaName));
      if (lock_ && now && now->same_file(file_.info())) {
        text_ = file_.read_all(kMaxMetaBytes);
        meta_ = parse_meta(text_, path_.string());
        return;
      }
    }
    throw Error::io(EBUSY, path_.string(),
                    path_.string() + ": the folder is being changed: expected no other writer");
  }

  const NodeMeta& meta() const noexcept { return meta_; }
  os::Directory& directory() noexcept { return directory_; }

  /// Throws Error(invalid_argument) for a key that this node cannot get this way.
  void check_new(std::string_view key, const std::string& name, std::string_view suffix) const {
    const std::string where = directory_.display() + ": " + key_part(key);
    if (meta_.kind != MetaKind::tensordict) {
      throw Error(ErrorCode::invalid_argument,
                  where + ": expected the folder of a TensorDict, found a " + meta_.type);
    }
    for (const MetaEntry& entry : meta_.entries) {
      if (entry.key == key) {
        throw Error(ErrorCode::invalid_argument,
                    where + " already exists within the target tensordict: expected a new key");
      }
      if (entry.is_node == suffix.empty() && encode_key(entry.key) != name) continue;
      const std::string taken =
          encode_key(entry.key) + std::string(entry.is_node ? "" : kLeafSuffix);
      if (taken == name + std::string(suffix)) {
        throw Error(ErrorCode::invalid_argument,
                    where + ": its file has the name of " + key_part(entry.key) +
                        ": expected another name; save the whole tree again, which keeps both");
      }
    }
    if (is_reserved_key(key)) {
      throw Error(ErrorCode::invalid_argument,
                  where +
                      ": tensordict's metadata uses this key itself: expected another one; save "
                      "the whole tree again, which keeps it");
    }
    if (name.size() + suffix.size() > kMaxNameBytes) {
      throw Error(ErrorCode::invalid_argument,
                  where + ": name of its file too long: expected at most " +
                      std::to_string(kMaxNameBytes) + " bytes, found " +
                      std::to_string(name.size() + suffix.size()));
    }
  }

  /// Adds `"key": entry` as the last member; all others stay as they are, byte for byte.
  void add(std::string_view key, const Value::Object& entry) {
    const std::size_t brace = text_.rfind('}');
    const std::string member = to_json(Value(std::string(key))) + ": " + to_json(Value(entry));
    // A node's meta.json has at least its `_type`, so there is a member before.
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
  throw Error(ErrorCode::invalid_argument,
              key_part(key) +
                  ": No such file or directory: expected a key that is a file name as "
                  "it stands, found one that is none; the option robust_key encodes it");
}

Value::Object leaf_entry(const NewLeaf& leaf) {
  Value::List lengths;
  for (const std::int64_t length : leaf.shape) lengths.items.emplace_back(length);
  Value::Object entry;
  entry.members.emplace_back("device", Value("cpu"));
  entry.members.emplace_back("shape", Value(std::move(lengths)));
  entry.members.emplace_back("dtype", Value("torch." + std::string(name(leaf.dtype))));
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

/// Makes the file, or takes one that exists, and makes it long enough.
void make_file(const os::Directory& folder, const std::string& name, std::uint64_t size_bytes,
               bool existing_ok, std::span<const std::byte> bytes) {
  os::File file;
  if (folder.entry_info(name)) {
    if (!existing_ok) {
      const std::string display = folder.display_of(name);
      throw Error::io(
          EEXIST, display,
          display + ": the file already exists: expected none; the option existsok takes it");
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
    throw Error::io(EEXIST, display, display + ": expected a folder or nothing, found a file");
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
  // The notes stay as they are, and would not say what it is.
  if (has_special(value.value)) {
    throw Error(ErrorCode::unsupported, folder.string() +
                                            ": a value in place: expected JSON, found " +
                                            std::string(value.value.type_name()) +
                                            "; save the whole tree again, which keeps it");
  }
  const std::string text = non_tensor_meta(value);
  const MetaEdit edit(folder);
  if (edit.meta().kind != MetaKind::non_tensor && edit.meta().kind != MetaKind::non_tensor_stack) {
    throw Error(ErrorCode::invalid_argument,
                folder.string() + ": expected the folder of a value, found a " + edit.meta().type);
  }
  replace_file(folder / std::string(kMetaName), text, false);
}

}  // namespace tenfold::detail::formats::folder
