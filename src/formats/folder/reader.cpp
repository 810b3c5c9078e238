#include "formats/folder/reader.hpp"

#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "core/tree/node.hpp"
#include "formats/folder/append/commit_page.hpp"
#include "formats/folder/handle.hpp"
#include "formats/folder/keys.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/folder/node_builder.hpp"

namespace tenfold::detail::formats::folder {
namespace {

constexpr std::string_view kStackPickle = "pickle.pkl";

[[noreturn]] void fail(const NodePlace& place, const std::string& what) {
  throw Error(ErrorCode::corrupt, meta_where(place) + ": " + what);
}

std::string read_meta_text(const NodePlace& place) {
  if (auto text = place.folder->read_text(std::string(kMetaName), kMaxMetaBytes)) {
    return std::move(*text);
  }
  if (place.folder->was_replaced()) place.folder->throw_replaced();
  throw Error(ErrorCode::corrupt, place.folder->display() + ": " + std::string(kMetaName) +
                                      ": file is missing: expected the folder of a TensorDict");
}

bool has_entry(const NodePlace& place, std::string_view name) {
  return place.folder->file_info(std::string(name)).has_value();
}

[[noreturn]] void refuse_pickle(const NodePlace& place, const std::string& part,
                                std::string_view name) {
  throw Error(ErrorCode::unsupported,
              place.folder->display() + ": " + part + ": stored in " + base::quote(name) +
                  ": expected JSON, found a pickle; nothing is ever unpickled");
}

NonTensor read_non_tensor(const NodePlace& place, const std::string& text) {
  Value::Object fields = parse_fields(text, meta_where(place));
  NonTensor result;
  for (auto& [key, value] : fields.members) {
    if (key != "data") continue;
    result.value = std::move(value);
    apply_value_note(place.store->notes(), place.note_path, result.value);
    return result;
  }
  // Where `data` is in the JSON, as above, a pickle beside it holds nothing that is missed.
  if (has_entry(place, kPickleName)) refuse_pickle(place, "value", kPickleName);
  return result;
}

/// The layout of versions before 0.4: the items are folders, as in a lazy stack.
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
    if (value == nullptr) fail(place, "item " + name + ": expected a JSON value, found a node");
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
      fail(place, "data: expected a list or \"pickle.pkl\", found " + base::quote(*name));
    }
    if (!value.is<Value::List>()) {
      fail(place, "data: expected a list, found " + std::string(value.type_name()));
    }
    result.value = std::move(value);
    apply_value_note(place.store->notes(), place.note_path, result.value);
    return result;
  }
  result.value = read_stack_folders(place);
  return result;
}

/// A stack of a tensorclass is stored as one tensorclass around a lazy stack; here it is a lazy
/// stack of nodes of that class.
TensorDict read_tensorclass(const NodePlace& place, const std::string& text, const NodeMeta& meta,
                            std::shared_ptr<Folder> inner_folder) {
  const NodePlace inner{place.store, std::move(inner_folder), place.note_path};
  TensorDict::Item item = read_node(inner, meta.type);
  auto* node = std::get_if<TensorDict>(&item);
  if (node == nullptr) {
    fail(place, std::string(kInnerName) + ": expected a node, found a JSON value");
  }
  Node& target = *node->node();
  target.where = place.folder->display();
  for (auto& [key, value] : parse_fields(text, meta_where(place)).members) {
    // Fields without a value are no longer written at all; they mean the same.
    if (value.is_null() || key == "_format_version" || key == "_class") continue;
    if (target.find(key) != Node::npos) {
      fail(place, "field " + base::quote(key) +
                      ": expected in one place, found a value here and an entry of " +
                      std::string(kInnerName));
    }
    node->set(key, std::move(value));
  }
  if (has_entry(place, kPickleName)) {
    place.store->left_out(place.folder->display() + "/" + std::string(kPickleName),
                          "tensorclass " + base::quote(meta.type),
                          "fields stored in a pickle are left out: expected JSON; nothing is ever "
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
    warn(meta_where(place) + ": class " + meta.type + " is unknown; read as a TensorDict");
    return build_tensordict(place, std::move(meta), class_name);
  }
  throw Error(ErrorCode::corrupt, place.folder->display() + ": tensorclass " +
                                      base::quote(meta.type) + ": folder is missing: expected " +
                                      base::quote(kInnerName));
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
      throw Error(ErrorCode::unsupported,
                  meta_where(place) + ": class " + meta.type +
                      ": a view of another TensorDict: expected a TensorDict of its own; open its "
                      "folder \"_source\", or save a copy of the view with tensordict");
    case MetaKind::unknown:
      return read_unknown(place, text, class_name, std::move(meta));
  }
  fail(place, "class " + meta.type + ": unknown");
}

namespace {

/// Before meta.json is read: a writer that closes in between leaves meta.json with as many rows.
void find_live_rows(Folder& folder, Store& store) {
  if (!folder.may_grow()) return;
  const auto page = read_commit_page(folder);
  if (!page) return;
  store.set_grows();
  if (const CommitState* state = state_now(*page)) {
    store.set_live_rows(static_cast<std::int64_t>(state->num_rows));
  }
  // Slots of a ring change while they are read; who reads them looks at the page again.
  if (page->capacity > 0) store.arena().close();
}

}  // namespace

TensorDict open_tree(std::shared_ptr<Folder> folder, Mode mode, std::vector<Problem>* problems) {
  Notes notes;
  const std::string notes_name(kNotesName);
  std::string notes_where = folder->display() + "/" + notes_name;
  if (const auto text = folder->read_text(notes_name, kMaxMetaBytes)) {
    notes = Notes::from_json(*text, notes_where);
  }
  NodePlace root;
  root.store = std::make_shared<Store>(mode, std::move(notes), notes_where);
  root.store->collect_problems(problems);
  find_live_rows(*folder, *root.store);
  root.folder = std::move(folder);
  TensorDict::Item item = read_node(root);
  if (const auto* tree = std::get_if<TensorDict>(&item)) {
    tree->node()->info.schema = root.store->notes().schema;
    tree->node()->info.metadata = root.store->notes().metadata;
    return *tree;
  }
  throw Error(ErrorCode::unsupported, root.folder->display() +
                                          ": root: expected a node with keys, found one JSON "
                                          "value; open the folder above it");
}

TensorDict open_tree(os::Directory folder, const Path& path, Mode mode,
                     std::vector<Problem>* problems) {
  return open_tree(FolderHandle::root(std::move(folder), path), mode, problems);
}

}  // namespace tenfold::detail::formats::folder
