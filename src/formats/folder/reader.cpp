#include "formats/folder/reader.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/torch_names.hpp"
#include "core/tree/batch.hpp"
#include "core/tree/node.hpp"
#include "core/tree/sparse.hpp"
#include "formats/folder/append/commit_page.hpp"
#include "formats/folder/handle.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/leaf_source.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/folder/row_count.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// A sub-folder that is read at its first access.
class FolderItem final : public LazyItem {
 public:
  FolderItem(NodePlace parent, std::string key, std::string name, std::string class_name,
             std::int64_t stack_dim = 0)
      : parent_(std::move(parent)),
        key_(std::move(key)),
        name_(std::move(name)),
        class_name_(std::move(class_name)),
        stack_dim_(stack_dim) {}

  TensorDict::Item load() override {
    NodePlace place{parent_.store, open(), note_path_child(parent_.note_path, key_)};
    TensorDict::Item item = read_node(place, class_name_);
    if (stack_dim_ == 0) return item;  // dimension 0 is valid for any entry
    if (const auto fault = stack_dim_fault(stack_dim_, key_, item)) {
      throw Error(*fault).part("stack_dim").path(meta_where(parent_));
    }
    return item;
  }

 private:
  std::shared_ptr<Folder> open() const {
    Folder& parent = *parent_.folder;
    if (name_.size() <= os::kMaxNameBytes) {
      if (auto folder = parent.try_child(name_)) return folder;
    }
    // Folders that tensordict wrote before version 0.14, or with robust_key=False, are named by the
    // unencoded key.
    if (name_ != key_ && !is_clash_name(name_) && key_.size() <= os::kMaxNameBytes &&
        is_safe_raw_node(key_)) {
      if (auto folder = parent.try_child(key_)) return folder;
    }
    if (parent.was_replaced()) parent.throw_replaced();
    throw base::corrupt(parent.display())
        .part("node ", base::quote(key_))
        .problem("folder is missing")
        .expected("a folder ", base::quote(name_));
  }

  NodePlace parent_;
  std::string key_;
  std::string name_;
  std::string class_name_;
  std::int64_t stack_dim_;  ///< of the enclosing lazy stack; 0 without one
};

/// Builds the entries of one node.
class NodeBuilder {
 public:
  NodeBuilder(const NodePlace& place, Node& node)
      : place_(place),
        node_(node),
        notes_(place.store->node_notes(place.note_path)),
        source_(std::make_shared<FolderSource>(place.store, place.folder, place.note_path)) {
    if (notes_ == nullptr) return;
    for (const auto& [key, name] : notes_->files) names_.emplace(key, name);
  }

  void add_all(NodeMeta& meta) {
    node_.entries.reserve(meta.entries.size());
    // meta.json cannot list an entry with the key `shape`, `device` or `_type`, because it has a
    // member of this name itself. Such an entry gets the position of that member.
    for (std::size_t i = 0; i <= meta.entries.size(); ++i) {
      for (const auto& [key, position] : meta.reserved) {
        if (position == i) add_hidden(key);
      }
      if (i < meta.entries.size()) add(meta.entries[i], *source_);
    }
    add_unbatched();
  }

 private:
  std::string name_of(const std::string& key) const {
    const auto found = names_.find(key);
    return found == names_.end() ? std::string() : found->second;
  }

  void add(const MetaEntry& entry, FolderSource& source) {
    if (entry.problem) {
      push(entry.key,
           std::make_shared<RefusedItem>(Error(*entry.problem).path(meta_where(place_))));
    } else if (entry.is_node) {
      add_folder(entry.key);
    } else {
      add_leaf(entry, source, false);
    }
  }

  void add_leaf(const MetaEntry& entry, FolderSource& source, bool unbatched) {
    Leaf leaf = stored_leaf(entry.dtype, entry.shape, source.shared_from_this(),
                            source.add(entry, name_of(entry.key)));
    if (entry.is_nested) leaf.mark_nested();
    if (unbatched) leaf.mark_unbatched();
    push(entry.key, std::move(leaf));
  }

  void add_folder(const std::string& key) {
    std::string name = name_of(key);
    if (name.empty()) name = encode_key(key);
    push(key, std::make_shared<FolderItem>(place_, key, std::move(name), std::string()));
  }

  void add_hidden(std::string_view key) {
    if (notes_ == nullptr) return;
    if (const auto entry = hidden_leaf(key)) {
      if (!is_unbatched(entry->key)) add(*entry, *source_);
    } else if (names_.contains(std::string(key))) {
      add_folder(std::string(key));
    }
  }

  /// Returns the tensor that the notes list for a key that meta.json cannot list.
  std::optional<MetaEntry> hidden_leaf(std::string_view key) const {
    for (const auto& [name, leaf] : notes_->leaves) {
      if (name != key) continue;
      MetaEntry entry;
      entry.key = name;
      entry.dtype = leaf.dtype;
      entry.shape = leaf.shape;
      check_leaf_size(entry);
      return entry;
    }
    return std::nullopt;
  }

  bool is_unbatched(const std::string& key) const {
    const auto& keys = notes_->unbatched;
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }

  void add_unbatched() {
    if (notes_ == nullptr || notes_->unbatched.empty()) return;
    auto folder = place_.folder->try_child(std::string(kValuesName));
    if (!folder) {
      if (place_.folder->was_replaced()) place_.folder->throw_replaced();
      place_.store->report_ignored(
          place_.folder->display(), "unbatched tensors",
          "their folder is missing: expected a folder " + base::quote(kValuesName));
      return;
    }
    const std::string where = folder->display() + "/" + std::string(kMetaName);
    const auto text = folder->read_text(std::string(kMetaName), kMaxMetaBytes);
    if (!text) {
      if (folder->was_replaced()) folder->throw_replaced();
      throw base::corrupt(where)
          .problem("file is missing")
          .expected("the metadata of unbatched tensors");
    }
    NodeMeta meta = parse_meta(*text, where);
    if (place_.store->live_rows() && place_.note_path.empty()) take_whole_files(*folder, meta);
    auto source = std::make_shared<FolderSource>(place_.store, std::move(folder), place_.note_path);
    const auto add_one = [&](const MetaEntry& entry) {
      if (!entry.problem) {
        add_leaf(entry, *source, true);
      } else {
        add(entry, *source);
      }
    };
    std::unordered_set<std::string_view> unbatched(notes_->unbatched.begin(),
                                                   notes_->unbatched.end());
    for (const Node::Entry& entry : node_.entries) {
      if (unbatched.erase(entry.key) == 0) continue;
      place_.store->report_ignored(
          where, "tensor " + base::quote(entry.key),
          "ignored, because the node has another entry of this key, which another tool added");
    }
    for (const MetaEntry& entry : meta.entries) {
      if (!entry.is_node && unbatched.contains(entry.key)) add_one(entry);
    }
    for (const std::string_view key : {"shape", "device", "_type"}) {
      const auto entry = hidden_leaf(key);
      if (entry && unbatched.contains(entry->key)) add_one(*entry);
    }
  }

  /// Increases the first dimension of each dense tensor to the number of elements in its file,
  /// because elements of ragged rows may have been appended after the folder's meta.json was
  /// written. The row offsets determine which elements are used.
  void take_whole_files(Folder& folder, NodeMeta& meta) const {
    for (MetaEntry& entry : meta.entries) {
      if (entry.is_node || entry.is_nested || entry.shape.empty() || entry.problem) continue;
      std::string name = name_of(entry.key);
      if (name.empty()) name = encode_key(entry.key) + std::string(kLeafSuffix);
      if (name.size() > os::kMaxNameBytes) continue;
      const auto file = folder.file_info(name);
      MetaEntry row;
      row.dtype = entry.dtype;
      row.shape.assign(entry.shape.begin() + 1, entry.shape.end());
      check_leaf_size(row);
      if (!file || row.problem || row.size_bytes == 0) continue;
      const auto rows = static_cast<std::int64_t>(file->size_bytes / row.size_bytes);
      entry.shape[0] = std::max(entry.shape[0], rows);
      check_leaf_size(entry);
    }
  }

  void push(const std::string& key, Node::Slot slot) {
    node_.entries.push_back({key, std::move(slot)});
  }

  const NodePlace& place_;
  Node& node_;
  const NodeNotes* notes_;
  std::shared_ptr<FolderSource> source_;
  std::unordered_map<std::string, std::string> names_;
};

void set_rows(NodeMeta& meta, std::int64_t rows) {
  meta.batch_size[0] = rows;
  for (MetaEntry& entry : meta.entries) {
    if (entry.is_node || entry.is_nested || entry.shape.empty()) continue;
    entry.shape[0] = rows;
    if (!entry.problem) check_leaf_size(entry);
  }
}

/// Sets the number of rows of a node below the root to the root's number, if the tree grows and
/// both have a batch size. The root's number is larger than that in the node's meta.json if rows
/// were appended after this meta.json was written. It is smaller if a flush was interrupted after
/// it replaced this meta.json. If the root's number comes from its meta.json, not from `%commit`,
/// the node's number is only ever reduced.
void take_rows_of_root(const NodePlace& place, NodeMeta& meta) {
  const auto& rows = place.store->root_rows();
  if (!rows || meta.batch_size.empty()) return;
  if (place.store->live_rows() || meta.batch_size[0] > *rows) set_rows(meta, *rows);
}

/// Sets the number of rows of the root to `rows`. Returns false, and changes nothing, if meta.json
/// has more rows or no row count, or if a sparse matrix has too few row offsets.
bool take_counted_rows(const NodePlace& place, NodeMeta& meta, std::int64_t rows) {
  if (count_sparse_rows(meta, rows, *place.folder)) return true;
  if (meta.batch_size.empty() || meta.batch_size[0] > rows) return false;
  set_rows(meta, rows);
  return true;
}

/// Corrects the number of rows in `meta`, because rows may have been appended after meta.json was
/// written. If the tree grows and its root has a batch size, also stores the root's number of rows,
/// which take_rows_of_root() applies to the nodes below.
void take_live_rows(const NodePlace& place, NodeMeta& meta) {
  if (!place.note_path.empty()) return take_rows_of_root(place, meta);
  std::optional<std::int64_t> rows = place.store->live_rows();
  if (rows && !take_counted_rows(place, meta, *rows)) {
    // After live_rows() was read, the writer may have flushed more rows or closed the folder.
    rows = committed_rows(*place.folder);
    if (rows && !take_counted_rows(place, meta, *rows)) {
      if (place.folder->was_replaced()) place.folder->throw_replaced();
      const std::string where = place.folder->display() + "/" + std::string(kCommitName);
      const auto counted = rows_counted(meta);
      warn(where + ": rows: expected " +
           (counted ? "at least " + std::to_string(*counted) + ", as in meta.json"
                    : "none, because meta.json has no batch size") +
           ", found " + std::to_string(*rows) +
           "; ignored, because another tool has replaced meta.json");
      return;
    }
  }
  if (place.store->grows() && !meta.batch_size.empty()) {
    place.store->set_root_rows(meta.batch_size[0]);
  }
}

std::shared_ptr<Node> new_node(const NodePlace& place) {
  auto node = std::make_shared<Node>();
  node->where = place.folder->display();
  return node;
}

/// Sorts the entries of a list or tuple by key, which is the position of the entry. They may be
/// unsorted, because unbatched tensors are read last, or because a tool that rewrote the folder
/// stored the nodes after the tensors.
void sort_positions(std::vector<Node::Entry>& entries) {
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (const Node::Entry& entry : entries) {
    std::uint64_t number = 0;
    const char* end = entry.key.data() + entry.key.size();
    const auto parsed = std::from_chars(entry.key.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) return;
    order.emplace_back(number, order.size());
  }
  if (std::is_sorted(order.begin(), order.end())) return;
  std::sort(order.begin(), order.end());
  std::vector<Node::Entry> sorted;
  sorted.reserve(entries.size());
  for (const auto& [number, position] : order) sorted.push_back(std::move(entries[position]));
  entries = std::move(sorted);
}

/// Sets the number of rows of a sparse CSR matrix from its row offsets, because the writer that
/// appends rows updates the matrix's shape in the notes only when it closes the folder.
void take_sparse_rows(Node& node) {
  if (node.info.layout != "sparse_csr" || node.info.dense_shape.size() != 2) return;
  const std::size_t ends = node.find(kRowEnds);
  const Leaf* leaf = ends == Node::npos ? nullptr : node.leaf_at(ends);
  if (leaf == nullptr || leaf->shape().size() != 1 || leaf->shape()[0] < 1) return;
  node.info.dense_shape[0] = leaf->shape()[0] - 1;
}

void apply_container(const NodePlace& place, Node& node) {
  const Notes& notes = place.store->notes();
  const auto note = notes.nodes.find(place.note_path);
  if (note == notes.nodes.end()) return;
  if (!node.info.batch_size.empty()) {
    warn(node.where + ": kind " + base::quote(to_string(note->second.kind)) + " in " +
         std::string(kNotesName) + " is ignored: expected batch size [], found " +
         base::list_text(node.info.batch_size) + "; another tool may have changed the tree");
    return;
  }
  const NodeKind kind = note->second.kind;
  if (kind == NodeKind::list || kind == NodeKind::tuple) sort_positions(node.entries);
  std::vector<std::string> keys;
  keys.reserve(node.entries.size());
  for (const Node::Entry& entry : node.entries) keys.push_back(entry.key);
  apply_node_note(notes, place.note_path, keys, node.info, place.store->notes_where());
  if (place.note_path.empty() && place.store->grows()) take_sparse_rows(node);
  if (node.info.kind == NodeKind::sparse) {
    sort_sparse_parts(node);
    // If the enclosing node has a batch size, the components are stored as unbatched tensors
    // (Planner::add_node()). The sparse tensor itself has no batch size, so its components are
    // loaded as ordinary tensors.
    for (Node::Entry& entry : node.entries) {
      if (auto* leaf = std::get_if<Leaf>(&entry.slot)) leaf->mark_unbatched(false);
    }
  }
  // The other kinds that notes restore, such as dict, have no device.
  if (node.info.kind != NodeKind::tensordict) node.info.device.clear();
}

/// Throws Error(corrupt) if the node has tensors and none of their shapes begins with the batch
/// size. One shape that begins with it is sufficient: the other tensors may be UnbatchedTensors,
/// which tensordict up to 0.14 saves like ordinary tensors.
void require_batch_of_tensors(const NodePlace& place, const NodeMeta& meta) {
  const MetaEntry* other = nullptr;
  for (const MetaEntry& entry : meta.entries) {
    if (entry.is_node || entry.problem) continue;
    if (fits_batch(entry.shape, entry.is_nested, meta.batch_size)) return;
    if (other == nullptr) other = &entry;
  }
  if (other == nullptr) return;
  throw base::corrupt(meta_where(place))
      .part("shape")
      .problem("the batch size fits no tensor")
      .expected("the beginning of a tensor's shape, such as ", base::list_text(other->shape),
                " of ", base::quote(other->key))
      .found(base::list_text(meta.batch_size));
}

/// Throws Error(corrupt) unless `device` is empty or has the syntax of a device.
void require_device(const NodePlace& place, const std::string& device) {
  if (device.empty() || is_torch_device(device)) return;
  throw base::corrupt(meta_where(place))
      .part("device")
      .expected("a type and optionally an index of at most 127, as in \"cuda:0\"")
      .found(base::quote(device));
}

/// Builds the node that the meta.json of a TensorDict describes. Adds entries that only the notes
/// list, and unbatched leaves. If `class_name` is not empty, the node becomes a tensorclass;
/// otherwise, it gets the kind of the original container from the notes.
TensorDict build_tensordict(const NodePlace& place, NodeMeta meta, const std::string& class_name) {
  auto node = new_node(place);
  take_live_rows(place, meta);
  require_batch_of_tensors(place, meta);
  require_device(place, meta.device);
  node->info.batch_size = std::move(meta.batch_size);
  node->info.names = std::move(meta.names);
  node->info.device = std::move(meta.device);
  NodeBuilder(place, *node).add_all(meta);
  if (class_name.empty()) {
    apply_container(place, *node);
  } else {
    node->info.kind = NodeKind::tensorclass;
    node->info.class_name = class_name;
  }
  return tensordict_of(std::move(node));
}

/// Builds a lazy stack of the folders "0", "1", ... up to the first missing one, because the length
/// of the stack is not stored.
TensorDict build_lazy_stack(const NodePlace& place, const NodeMeta& meta,
                            const std::string& class_name) {
  auto node = new_node(place);
  node->info.kind = NodeKind::lazy_stack;
  node->info.stack_dim = meta.stack_dim;
  node->info.stack_dim_name = meta.stack_dim_name;
  for (std::uint64_t i = 0;; ++i) {
    const std::string name = std::to_string(i);
    if (!place.folder->has_child(name)) break;
    node->entries.push_back(
        {name, std::make_shared<FolderItem>(place, name, name, class_name, meta.stack_dim)});
  }
  // A save that replaced the tree may already have removed some of its folders.
  if (place.folder->was_replaced()) place.folder->throw_replaced();
  // Load the first entry now, so that a stack_dim that is too large is refused at once.
  if (meta.stack_dim > 0 && !node->entries.empty()) static_cast<void>(node->item(0));
  return tensordict_of(std::move(node));
}

constexpr std::string_view kStackPickle = "pickle.pkl";

Error fail(const NodePlace& place) { return base::corrupt(meta_where(place)); }

std::string read_meta_text(const NodePlace& place) {
  if (auto text = place.folder->read_text(std::string(kMetaName), kMaxMetaBytes)) {
    return std::move(*text);
  }
  if (place.folder->was_replaced()) place.folder->throw_replaced();
  throw base::corrupt(place.folder->display())
      .part(kMetaName)
      .problem("file is missing")
      .expected("the folder of a TensorDict");
}

bool has_entry(const NodePlace& place, std::string_view name) {
  return place.folder->file_info(std::string(name)).has_value();
}

[[noreturn]] void refuse_pickle(const NodePlace& place, const std::string& part,
                                std::string_view name) {
  throw base::unsupported(place.folder->display())
      .part(part)
      .problem("stored in ", base::quote(name))
      .expected("JSON")
      .found("a pickle")
      .remedy("nothing is ever unpickled");
}

NonTensor read_non_tensor(const NodePlace& place, const std::string& text) {
  Value::Object fields = parse_fields(text, meta_where(place));
  NonTensor result;
  for (auto& [key, value] : fields.members) {
    if (key != "data") continue;
    result.value = std::move(value);
    apply_value_note(place.store->notes(), place.note_path, result.value,
                     place.store->notes_where());
    return result;
  }
  // A pickle matters only if `data` is not in the JSON.
  if (has_entry(place, kPickleName)) refuse_pickle(place, "value", kPickleName);
  return result;
}

/// Reads a NonTensorStack of tensordict before 0.4: each item is a folder, as in a lazy stack.
Value::List read_stack_folders(const NodePlace& place) {
  Value::List list;
  for (std::uint64_t i = 0;; ++i) {
    const std::string name = std::to_string(i);
    auto folder = place.folder->try_child(name);
    if (!folder) {
      if (place.folder->was_replaced()) place.folder->throw_replaced();
      return list;
    }
    const NodePlace child{place.store, std::move(folder), note_path_child(place.note_path, name)};
    TensorDict::Item item = read_node(child);
    auto* value = std::get_if<NonTensor>(&item);
    if (value == nullptr) {
      throw fail(place).part("item ", name).expected("a JSON value").found("a node");
    }
    list.items.push_back(std::move(value->value));
  }
}

NonTensor read_non_tensor_stack(const NodePlace& place, const std::string& text,
                                const NodeMeta& meta) {
  Value::Object fields = parse_fields(text, meta_where(place));
  NonTensor result;
  result.is_stack = true;
  result.stack_dim = meta.stack_dim;
  require_device(place, meta.device);
  result.device = meta.device;
  for (auto& [key, value] : fields.members) {
    if (key != "data" || value.is_null()) continue;
    if (const auto* name = value.get_if<std::string>()) {
      if (*name == kStackPickle) refuse_pickle(place, "value", kStackPickle);
      throw fail(place).part("data").expected("a list or \"pickle.pkl\"").found(base::quote(*name));
    }
    if (!value.is<Value::List>()) {
      throw fail(place).part("data").expected("a list").found(value.type_name());
    }
    result.value = std::move(value);
    apply_value_note(place.store->notes(), place.note_path, result.value,
                     place.store->notes_where());
    return result;
  }
  result.value = read_stack_folders(place);
  return result;
}

/// Reads a tensorclass. If it contains a lazy stack, returns a lazy stack of nodes of that class,
/// because a stack of tensorclasses is stored as one tensorclass around a lazy stack.
TensorDict read_tensorclass(const NodePlace& place, const std::string& text, const NodeMeta& meta,
                            std::shared_ptr<Folder> inner_folder) {
  const NodePlace inner{place.store, std::move(inner_folder), place.note_path};
  TensorDict::Item item = read_node(inner, meta.type);
  auto* node = std::get_if<TensorDict>(&item);
  if (node == nullptr) {
    throw fail(place).part(kInnerName).expected("a node").found("a JSON value");
  }
  Node& target = *node_of(*node);
  target.where = place.folder->display();
  for (auto& [key, value] : parse_fields(text, meta_where(place)).members) {
    // Older versions of tensordict wrote fields whose value is None. A missing field has the same
    // meaning.
    if (value.is_null() || key == "_format_version" || key == "_class") continue;
    if (target.find(key) != Node::npos) {
      throw fail(place)
          .part("field ", base::quote(key))
          .problem("stored twice")
          .expected("one value")
          .found("one in this file and one in the folder ", kInnerName);
    }
    node->set(key, std::move(value));
  }
  if (has_entry(place, kPickleName)) {
    place.store->report_ignored(
        place.folder->display() + "/" + std::string(kPickleName),
        "tensorclass " + base::quote(meta.type),
        "fields stored in a pickle are ignored: expected JSON; nothing is ever "
        "unpickled");
  }
  return *node;
}

TensorDict::Item read_unknown(const NodePlace& place, const std::string& text,
                              const std::string& class_name, NodeMeta meta) {
  for (const MetaEntry& entry : meta.entries) {
    if (entry.is_node && entry.key == kInnerName) {
      return build_tensordict(place, std::move(meta), class_name);
    }
  }
  if (auto inner = place.folder->try_child(std::string(kInnerName))) {
    return read_tensorclass(place, text, meta, std::move(inner));
  }
  if (place.folder->was_replaced()) place.folder->throw_replaced();
  if (meta.has_shape) {
    warn(meta_where(place) + ": class " + meta.type + " is unknown; read as a " +
         (class_name.empty() ? "TensorDict" : "tensorclass"));
    return build_tensordict(place, std::move(meta), class_name);
  }
  throw base::corrupt(place.folder->display())
      .part("tensorclass ", base::quote(meta.type))
      .problem("folder is missing")
      .expected(base::quote(kInnerName));
}

}  // namespace

std::string meta_where(const NodePlace& place) {
  return place.folder->display() + "/" + std::string(kMetaName);
}

TensorDict::Item read_node(const NodePlace& place, const std::string& class_name) {
  const std::string text = read_meta_text(place);
  NodeMeta meta = parse_meta(text, meta_where(place));
  switch (meta.kind) {
    case MetaKind::tensordict:
      return build_tensordict(place, std::move(meta), class_name);
    case MetaKind::lazy_stack:
      return build_lazy_stack(place, meta, class_name);
    case MetaKind::non_tensor:
      return read_non_tensor(place, text);
    case MetaKind::non_tensor_stack:
      return read_non_tensor_stack(place, text, meta);
    case MetaKind::view:
      throw base::unsupported(meta_where(place))
          .part("class ", meta.type)
          .problem("a view of another TensorDict")
          .expected("a TensorDict that is not a view")
          .remedy("open its folder \"_source\", or save a copy of the view with tensordict");
    case MetaKind::unknown:
      return read_unknown(place, text, class_name, std::move(meta));
  }
  throw fail(place).part("class ", meta.type).problem("unknown");
}

namespace {

/// Stores in `store` that the tree has a `%commit`, and the number of committed rows.
void take_page(const CommitPage& page, Store& store) {
  store.set_grows();
  if (const CommitState* state = state_now(page)) {
    store.set_live_rows(static_cast<std::int64_t>(state->num_rows));
  }
  // In a circular buffer, rows may be overwritten during a read, so readers check the commit page
  // again after the read. Small leaves must be mapped, too, because copies in the arena would
  // become stale.
  if (page.capacity > 0) store.arena().close();
}

/// The root of a tree, and the item that it contains.
struct Root {
  NodePlace place;
  TensorDict::Item item;
};

Root read_root(const std::shared_ptr<Folder>& folder, Mode mode, std::vector<Problem>* problems) {
  const std::string notes_name(kNotesName);
  const std::string notes_where = folder->display() + "/" + notes_name;
  const std::size_t num_earlier = problems == nullptr ? 0 : problems->size();
  for (int num_reads = 1;; ++num_reads) {
    // Read `%commit` first: if the writer closes the folder after that, the notes and meta.json
    // have at least as many rows as `%commit` had.
    std::optional<CommitPage> page;
    if (folder->may_grow()) page = read_commit_page(*folder);
    Notes notes;
    const auto text = folder->read_text(notes_name, kMaxMetaBytes);
    if (text) notes = Notes::from_json(*text, notes_where);
    const auto note = notes.nodes.find(std::string_view());
    const bool counts_rows = note != notes.nodes.end() && !note->second.layout.empty();
    NodePlace place{std::make_shared<Store>(mode, std::move(notes), notes_where), folder, {}};
    // Remove the problems of the previous read, because each read finds them again.
    if (problems != nullptr) {
      problems->erase(problems->begin() + static_cast<std::ptrdiff_t>(num_earlier),
                      problems->end());
    }
    place.store->collect_problems(problems);
    if (page) take_page(*page, *place.store);
    TensorDict::Item item = read_node(place);
    // For a sparse matrix, both the notes and meta.json store the number of rows. If there was no
    // `%commit`, a writer may have appended rows between the reads of these two files: then read
    // both again.
    if (!counts_rows || page || !folder->may_grow() || num_reads == os::kMaxReads ||
        (!folder->file_info(std::string(kCommitName)) &&
         folder->read_text(notes_name, kMaxMetaBytes) == text)) {
      return {std::move(place), std::move(item)};
    }
  }
}

}  // namespace

TensorDict open_tree(std::shared_ptr<Folder> folder, Mode mode, std::vector<Problem>* problems) {
  const auto [root, item] = read_root(folder, mode, problems);
  if (const auto* tree = std::get_if<TensorDict>(&item)) {
    node_of(*tree)->info.schema = root.store->notes().schema;
    node_of(*tree)->info.metadata = root.store->notes().metadata;
    return *tree;
  }
  throw base::unsupported(root.folder->display())
      .part("root")
      .expected("a node with keys")
      .found("one JSON value")
      .remedy("open the folder above it");
}

TensorDict open_tree(os::Directory folder, const Path& path, Mode mode,
                     std::vector<Problem>* problems) {
  return open_tree(FolderHandle::root(std::move(folder), path), mode, problems);
}

}  // namespace tenfold::detail::formats::folder
