#include "formats/folder/plan.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/value/value_json.hpp"
#include "formats/folder/handle.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/shared/storable.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {
namespace {

bool is_float8_or_4(DType dtype) noexcept {
  return dtype >= DType::float8_e4m3fn && dtype <= DType::float4_e2m1fn_x2;
}

/// True for a dict with keys that are not strings.
bool has_other_keys(const Value& value) {
  const auto* object = value.get_if<Value::Object>();
  return object != nullptr && (object->int_keys || !object->typed_keys.empty());
}

/// True for an extended scalar (Value::Special) other than a torch.Size or a Counter. tensordict
/// stores these two as a JSON list and object, and pickles most other extended scalars.
bool is_pickled(const Value& value) {
  using Type = Value::Special::Type;
  const auto* special = value.get_if<Value::Special>();
  return special != nullptr && special->type != Type::size && special->type != Type::counter;
}

/// Returns the tensorclass that all elements of a stack have in common, or "" if there is none.
/// tensordict stores a stack with a common class as one tensorclass around a lazy stack.
std::string common_class(const TensorDict& stack) {
  std::string common;
  bool first = true;
  stack.for_each([&](const std::string&, const TensorDict::Item& item) {
    const auto* node = std::get_if<TensorDict>(&item);
    const bool is_class = node != nullptr && node->kind() == NodeKind::tensorclass;
    const std::string name = is_class ? node->info().class_name : std::string();
    common = first || common == name ? name : std::string();
    first = false;
  });
  return common;
}

/// Removes the notes that NotesUse::needed omits. These are aliases, because tensordict also writes
/// one file for each alias, and the notes of values in which all keys are strings, because
/// tensordict also stores a tuple as a list and an OrderedDict as a dict.
void keep_needed(Notes& notes) {
  notes.aliases.clear();
  std::erase_if(notes.values, [](const auto& entry) {
    return entry.second.int_keys.empty() && entry.second.typed_keys.empty();
  });
}

/// Walks a tree and collects its folders and files.
class Planner {
 public:
  explicit Planner(const PlanOptions& options)
      : options_(options), with_notes_(options.notes != NotesUse::none) {}

  Plan run(const TensorDict& tree) {
    if (with_notes_) {
      notes_ = collect_notes(tree);
      if (options_.notes == NotesUse::needed) keep_needed(notes_);
      notes_.schema = tree.info().schema;
      notes_.metadata = tree.info().metadata;
    } else if (tree.info().schema) {
      refuse("the root", "the schema of a data set");
    } else if (!tree.info().metadata.empty()) {
      refuse("the root", "metadata of a safetensors file");
    }
    plan_.folders.emplace_back();
    add_node(tree, 0, "");
    if (!notes_.empty()) add_text(0, std::string(kNotesName), notes_.to_json());
    link_aliases();
    return std::move(plan_);
  }

 private:
  /// An entry of a TensorDict's folder.
  struct Entry {
    std::string key;
    TensorDict::Item item;
    std::string name;  ///< of the folder, or of the file without its suffix
    bool clashes = false;

    const Leaf* leaf() const { return std::get_if<Leaf>(&item); }
    bool is_nested() const { return leaf() != nullptr && leaf()->is_nested(); }
    std::vector<std::string> names_of(const std::string& stem) const {
      return file_names(stem, leaf() == nullptr, is_nested());
    }
  };

  [[noreturn]] static void refuse(const std::string& what, std::string_view part) {
    throw base::unsupported()
        .part(what)
        .problem(part)
        .expected("what tensordict's own format supports")
        .remedy("save() of tenfold stores it");
  }

  std::size_t add_folder(std::size_t parent, const std::string& name, const std::string& path) {
    if (++depth_ > FolderHandle::kMaxDepth) {
      throw base::unsupported({"", key_part(path)})
          .problem("nodes nested too deep")
          .expected("at most ", FolderHandle::kMaxDepth, " levels");
    }
    plan_.folders.push_back({parent, name});
    return plan_.folders.size() - 1;
  }

  void add_text(std::size_t folder, std::string name, std::string text) {
    Plan::File file;
    file.folder = folder;
    file.name = std::move(name);
    file.size_bytes = text.size();
    file.text = std::move(text);
    check_meta_bytes(file.size_bytes, {"", plan_.path_of(file)}, options_.max_meta_bytes);
    plan_.files.push_back(std::move(file));
  }

  void add_bytes(std::size_t folder, std::string name, const Leaf& leaf, const std::string& path,
                 bool is_sizes) {
    Plan::File file;
    file.folder = folder;
    file.name = std::move(name);
    file.is_leaf = true;
    file.is_sizes = is_sizes;
    file.leaf = leaf;
    file.note_path = path;
    file.size_bytes = leaf.nbytes();
    if (file.size_bytes == 0) return;  // tensordict writes no empty files
    plan_.files.push_back(std::move(file));
  }

  void add_node(const TensorDict& node, std::size_t folder, const std::string& path,
                bool under_batch = false);
  void add_tensordict(const TensorDict& node, std::size_t folder, const std::string& path,
                      bool unbatched_parts = false);
  void add_tensorclass(const TensorDict& node, std::size_t folder, const std::string& path);
  void add_lazy_stack(const TensorDict& node, std::size_t folder, const std::string& path);
  void add_value(const NonTensor& value, std::size_t folder, const std::string& path);
  void add_leaf(const Leaf& leaf, std::size_t folder, const std::string& name,
                const std::string& path);

  std::vector<Entry> entries_of(const TensorDict& node, const std::string& path, bool unbatched,
                                bool unbatched_parts);
  void name_entries(std::vector<Entry>& entries, const std::string& path);
  void note_names(const std::vector<Entry>& entries, const std::string& path);
  static void check_batch(const Shape& batch, const std::vector<Entry>& entries,
                          const std::string& path);
  void add_entries(const NodeInfo& info, const std::vector<Entry>& entries, std::size_t folder,
                   const std::string& path);
  void link_aliases();

  PlanOptions options_;
  bool with_notes_;
  Notes notes_;
  Plan plan_;
  std::size_t depth_ = 0;
  std::uint64_t next_clash_ = 0;
  std::unordered_map<std::string, std::size_t> leaf_files_;  ///< note path -> index of its file
};

/// `under_batch`: true if the enclosing node has batch dimensions. tensordict requires that the
/// shapes of the tensors in `node` begin with the lengths of these dimensions, too.
void Planner::add_node(const TensorDict& node, std::size_t folder, const std::string& path,
                       bool under_batch) {
  const std::size_t depth = depth_;
  const NodeKind kind = node.kind();
  const bool native =
      kind == NodeKind::tensordict || kind == NodeKind::tensorclass || kind == NodeKind::lazy_stack;
  if (!with_notes_ && (!native || node.info().int_keys || !node.info().typed_keys.empty())) {
    refuse(path.empty() ? "the root" : key_part(path), "a node of kind " + to_string(kind));
  }
  if (!with_notes_) require_valid_info(path, node);  // otherwise done by collect_notes()
  if (kind == NodeKind::tensorclass) {
    add_tensorclass(node, folder, path);
  } else if (kind == NodeKind::lazy_stack) {
    add_lazy_stack(node, folder, path);
  } else {
    // The shapes of the components of a sparse tensor need not begin with the batch size of the
    // enclosing node. tensordict would refuse such components as ordinary tensors, so they are
    // stored as unbatched tensors.
    add_tensordict(node, folder, path, under_batch && kind == NodeKind::sparse);
  }
  depth_ = depth;
}

void Planner::add_tensorclass(const TensorDict& node, std::size_t folder, const std::string& path) {
  add_text(folder, std::string(kMetaName), tensorclass_meta(node.info()));
  add_tensordict(node, add_folder(folder, std::string(kInnerName), path), path);
}

void Planner::add_lazy_stack(const TensorDict& node, std::size_t folder, const std::string& path) {
  const std::string class_name = common_class(node);
  if (!class_name.empty()) {
    NodeInfo header;
    header.class_name = class_name;
    add_text(folder, std::string(kMetaName), tensorclass_meta(header));
    folder = add_folder(folder, std::string(kInnerName), path);
  }
  add_text(folder, std::string(kMetaName), lazy_stack_meta(node.info()));
  std::uint64_t count = 0;
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const std::size_t depth = depth_;
    const std::string child = note_path_child(path, key);
    if (key != std::to_string(count++) || std::holds_alternative<Leaf>(item)) {
      throw base::invalid_argument()
          .part(key_part(child))
          .part("element of a lazy stack")
          .expected("nodes \"0\", \"1\", ...")
          .found((std::holds_alternative<Leaf>(item) ? "a tensor" : "another key"));
    }
    const std::size_t element = add_folder(folder, key, child);
    if (const auto* value = std::get_if<NonTensor>(&item)) {
      add_value(*value, element, child);
    } else if (class_name.empty()) {
      add_node(std::get<TensorDict>(item), element, child);
    } else {
      add_tensordict(std::get<TensorDict>(item), element, child);
    }
    depth_ = depth;
  });
}

void Planner::add_value(const NonTensor& value, std::size_t folder, const std::string& path) {
  if (!with_notes_ && find_in(value.value, has_other_keys) != nullptr) {
    refuse(key_part(path), "a dict whose keys are not all str");
  }
  // With NotesUse::all, `%notes.json` stores the type of an extended scalar. Otherwise the notes
  // omit the type, and tensordict would write a pickle, which tenfold does not write.
  const Value* pickled =
      options_.notes == NotesUse::all ? nullptr : find_in(value.value, is_pickled);
  if (pickled != nullptr) {
    refuse(key_part(path),
           "a value of type " + std::string(pickled->type_name()) + ", which is not JSON");
  }
  std::string text;
  try {
    text = non_tensor_meta(value);
  } catch (const Error& error) {
    throw Error(error).within(key_part(path));
  }
  add_text(folder, std::string(kMetaName), std::move(text));
}

void Planner::add_leaf(const Leaf& leaf, std::size_t folder, const std::string& name,
                       const std::string& path) {
  if (is_float8_or_4(leaf.dtype()) && plan_.unloadable_by_upstream.empty()) {
    plan_.unloadable_by_upstream = path;
  }
  const bool clashes = is_clash_name(name);
  const std::size_t number = plan_.files.size();
  add_bytes(folder, clashes ? name : name + std::string(kLeafSuffix), leaf, path, false);
  if (!notes_.aliases.empty() && plan_.files.size() > number) leaf_files_.emplace(path, number);
  if (!leaf.is_nested()) return;
  if (leaf.shape()[1] == 0 && leaf.shape()[0] != 0) {
    throw base::unsupported({"", key_part(path)})
        .part("nested tensor")
        .expected("components of at least 1 dimension")
        .found("0");
  }
  add_bytes(folder, sizes_name(name), Leaf(leaf.sizes()), path, true);
}

std::vector<Planner::Entry> Planner::entries_of(const TensorDict& node, const std::string& path,
                                                bool unbatched, bool unbatched_parts) {
  const bool is_class = node.kind() == NodeKind::tensorclass;
  std::vector<Entry> entries;
  entries.reserve(node.size());
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    const bool is_marked = leaf != nullptr && leaf->is_unbatched();
    const bool is_unbatched = leaf != nullptr && (is_marked || unbatched_parts);
    if (is_unbatched != unbatched) return;
    if (is_unbatched && !is_marked) notes_.unbatched.push_back(note_path_child(path, key));
    const auto* value = std::get_if<NonTensor>(&item);
    // A field whose value is None is omitted.
    if (is_class && value != nullptr && !value->is_stack && value->value.is_null()) return;
    if (is_unbatched && !with_notes_) {
      refuse(key_part(note_path_child(path, key)), "an unbatched tensor");
    }
    entries.push_back({key, item, entry_name(key, leaf != nullptr, options_.robust_names, path)});
  });
  return entries;
}

/// Renames an entry if the name of its file or folder is too long or already taken in the folder,
/// or if tenfold or tensordict uses such names. Ordinary tensors get their names first, then nodes
/// and JSON values, then nested tensors (which have two files), so that the rarer type is renamed.
void Planner::name_entries(std::vector<Entry>& entries, const std::string& path) {
  std::unordered_set<std::string> taken = {std::string(kMetaName)};
  taken.reserve(2 * entries.size());
  // Readers look for the encoded name of a key first, so no other entry may have a file of that
  // name.
  for (const Entry& entry : entries) {
    const std::string encoded = encode_key(entry.key);
    if (entry.name == encoded) continue;
    for (std::string& name : entry.names_of(encoded)) taken.insert(std::move(name));
  }
  const auto claim = [&](Entry& entry) {
    const std::vector<std::string> names = entry.names_of(entry.name);
    const bool free = std::none_of(names.begin(), names.end(), [&](const std::string& name) {
      return taken.contains(name) || is_own_name(name) || is_leftover(name) ||
             name.size() > os::kMaxNameBytes;
    });
    if (!free || is_clash_name(entry.name)) {
      entry.clashes = true;
      entry.name = clash_name(next_clash_++);
      return;
    }
    taken.insert(names.begin(), names.end());
  };
  for (Entry& entry : entries) {
    if (!base::is_utf8(entry.key)) {
      throw base::invalid_argument()
          .part(key_part(note_path_child(path, entry.key)))
          .expected("UTF-8")
          .found("other bytes");
    }
    if (entry.leaf() != nullptr && !entry.is_nested()) {
      claim(entry);
    }
  }
  for (Entry& entry : entries) {
    if (entry.leaf() == nullptr) claim(entry);
  }
  for (Entry& entry : entries) {
    if (entry.is_nested()) claim(entry);
  }
}

/// Adds to the notes what meta.json cannot store: the names of renamed entries, and entries with
/// reserved keys. Throws Error(unsupported) if notes are disabled and there is a renamed entry or
/// a reserved key, or if a nested tensor has a reserved key.
void Planner::note_names(const std::vector<Entry>& entries, const std::string& path) {
  for (const Entry& entry : entries) {
    const bool reserved = is_reserved_key(entry.key);
    if (!reserved && !entry.clashes) continue;
    const std::string child = note_path_child(path, entry.key);
    if (!with_notes_) {
      refuse(key_part(child),
             reserved
                 ? "a key that tensordict's metadata uses itself"
                 : "a key whose file name is too long, or belongs to another key or to tenfold");
    }
    if (entry.clashes || entry.leaf() == nullptr) notes_.files[child] = entry.name;
    if (!reserved || entry.leaf() == nullptr) continue;
    if (entry.is_nested()) {
      throw base::unsupported()
          .part(key_part(child))
          .problem("a nested tensor")
          .expected("another key")
          .found("one that tensordict's metadata uses itself")
          .remedy("rename the key");
    }
    notes_.leaves[child] = {entry.leaf()->dtype(), entry.leaf()->shape()};
  }
}

/// Throws if readers would refuse the batch size: if it is too large, or if the entries have
/// tensors and none of their shapes begins with it. One shape that begins with it is sufficient:
/// the other tensors may be UnbatchedTensors, which tensordict up to 0.14 saves like ordinary
/// tensors.
void Planner::check_batch(const Shape& batch, const std::vector<Entry>& entries,
                          const std::string& path) {
  if (const auto fault = batch_size_fault(batch)) {
    throw Error(*fault)
        .code(ErrorCode::unsupported)
        .within("batch size")
        .within(path.empty() ? "the root" : key_part(path));
  }
  const Entry* other = nullptr;
  for (const Entry& entry : entries) {
    const Leaf* leaf = entry.leaf();
    // The shape of a tensor with a reserved key is only in the notes.
    if (leaf == nullptr || is_reserved_key(entry.key)) continue;
    if (fits_batch(leaf->shape(), leaf->is_nested(), batch)) return;
    if (other == nullptr) other = &entry;
  }
  if (other == nullptr) return;
  require_batch(other->leaf()->shape(), batch, [&] {
    return base::unsupported().part(key_part(note_path_child(path, other->key)));
  });
}

void Planner::add_entries(const NodeInfo& info, const std::vector<Entry>& entries,
                          std::size_t folder, const std::string& path) {
  std::vector<MetaMember> members;
  std::vector<std::string> types;
  members.reserve(entries.size());
  types.reserve(entries.size());
  for (const Entry& entry : entries) {
    const std::string child = note_path_child(path, entry.key);
    MetaMember member;
    member.key = entry.key;
    if (const Leaf* leaf = entry.leaf()) {
      add_leaf(*leaf, folder, entry.name, child);
      member.dtype = leaf->dtype();
      member.shape = &leaf->shape();
      member.is_nested = leaf->is_nested();
    } else {
      const std::size_t depth = depth_;
      const std::size_t below = add_folder(folder, entry.name, child);
      if (const auto* value = std::get_if<NonTensor>(&entry.item)) {
        add_value(*value, below, child);
        types.emplace_back(value->is_stack ? "NonTensorStack" : "NonTensorData");
      } else {
        const auto& node = std::get<TensorDict>(entry.item);
        add_node(node, below, child, !info.batch_size.empty());
        std::string class_name = node.kind() == NodeKind::tensorclass  ? node.info().class_name
                                 : node.kind() == NodeKind::lazy_stack ? common_class(node)
                                                                       : "TensorDict";
        if (class_name.empty()) class_name = "LazyStackedTensorDict";
        types.emplace_back(short_class_name(class_name));
      }
      member.node_type = types.back();
      depth_ = depth;
    }
    members.push_back(member);
  }
  add_text(folder, std::string(kMetaName), tensordict_meta(info, members));
}

void Planner::add_tensordict(const TensorDict& node, std::size_t folder, const std::string& path,
                             bool unbatched_parts) {
  const DimNames& names = node.info().names;
  const bool named =
      std::any_of(names.begin(), names.end(), [](const auto& n) { return n.has_value(); });
  if (named && node.contains("_names")) {
    throw base::unsupported({"", key_part(note_path_child(path, "_names"))})
        .expected(
            "another key in a node with dimension names, which tensordict's metadata stores under "
            "this key")
        .remedy("rename the key");
  }
  std::vector<Entry> entries = entries_of(node, path, false, unbatched_parts);
  name_entries(entries, path);
  note_names(entries, path);
  check_batch(node.info().batch_size, entries, path);
  add_entries(node.info(), entries, folder, path);
  std::vector<Entry> unbatched = entries_of(node, path, true, unbatched_parts);
  if (unbatched.empty()) return;
  const std::size_t depth = depth_;
  const std::size_t values = add_folder(folder, std::string(kValuesName), path);
  name_entries(unbatched, path);
  note_names(unbatched, path);
  add_entries(NodeInfo(), unbatched, values, path);
  depth_ = depth;
}

void Planner::link_aliases() {
  for (const auto& [path, target] : notes_.aliases) {
    const auto alias = leaf_files_.find(path);
    const auto held = leaf_files_.find(target);
    if (alias == leaf_files_.end() || held == leaf_files_.end()) continue;
    if (held->second < alias->second) plan_.files[alias->second].same_as = held->second;
  }
  for (const Plan::File& file : plan_.files) {
    if (file.is_leaf && file.same_as == Plan::kNone) plan_.leaf_bytes += file.size_bytes;
  }
}

}  // namespace

std::string Plan::path_of(const File& file) const {
  std::string path = file.name;
  for (std::size_t i = file.folder; i != 0; i = folders[i].parent) {
    path.insert(0, folders[i].name + "/");
  }
  return path;
}

Plan plan_tree(const TensorDict& tree, const PlanOptions& options) {
  return Planner(options).run(tree);
}

}  // namespace tenfold::detail::formats::folder
