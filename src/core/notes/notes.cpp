#include "core/notes/notes.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/pickle/text.hpp"
#include "core/notes/walk.hpp"
#include "core/tensor/extended_scalar.hpp"
#include "core/tensor/torch_names.hpp"
#include "core/tree/aliases.hpp"
#include "core/tree/bare.hpp"
#include "core/tree/node.hpp"
#include "core/tree/sparse.hpp"
#include "core/tree/typed_keys.hpp"
#include "core/value/value_json.hpp"

namespace tenfold {
namespace {

bool is_position_key(std::string_view key, std::size_t position) {
  return key == std::to_string(position);
}

Error refuse_entry(std::string_view path) {
  return base::invalid_argument().part(
      path.empty() ? "root" : "key " + base::quote(dotted(*keys_of_note_path(path))));
}

/// Throws the errors of require_valid_keys() for one dict: a NodeInfo or a Value::Object.
template <class Dict>
void require_valid_types(std::string_view path, const Dict& dict) {
  if (dict.int_keys && !dict.typed_keys.empty()) {
    throw refuse_entry(path)
        .part("typed_keys")
        .expected("none, as int_keys is true")
        .found(dict.typed_keys.size());
  }
  if (!are_valid(dict.typed_keys)) {
    throw refuse_entry(path)
        .part("typed_keys")
        .expected("pairs of str(key) and key, sorted, for distinct keys that are not str")
        .found("others");
  }
}

/// Throws unless `text` is UTF-8. Lone surrogates are allowed, because JSON can escape them.
void require_text(std::string_view path, const char* part, const std::string& text) {
  if (codecs::is_pickle_text(text)) return;
  throw refuse_entry(path).part(part).expected("UTF-8").found(base::quote(text));
}

/// The note of `node`. `path`: its note path, which is "" for the root.
Notes::NodeNote note_of(const TensorDict& node, std::string_view path) {
  const NodeInfo& info = node.info();
  Notes::NodeNote note;
  note.kind = info.kind;
  note.int_keys = info.int_keys;
  note.typed_keys = info.typed_keys;
  note.layout = info.layout;
  note.dense_shape = info.dense_shape;
  note.is_coalesced = info.is_coalesced;
  note.module_versions = info.module_versions;
  note.is_bare = path.empty() && is_bare(node);
  return note;
}

class NotesCollector final : public TreeVisitor {
 public:
  explicit NotesCollector(bool of_leaves) : of_leaves_(of_leaves) {}

  Notes take() { return std::move(notes_); }

 private:
  void node(const std::string& path, const TensorDict& node) override {
    require_valid_info(path, node);
    if (has_note(node.kind())) notes_.nodes.emplace(path, note_of(node, path));
  }
  void leaf(const std::string& path, const Leaf& leaf) override {
    if (!of_leaves_) return;
    if (leaf.is_unbatched()) notes_.unbatched.push_back(path);
    const std::size_t first = finder_.add(leaf);
    if (first != paths_.size()) notes_.aliases.emplace(path, paths_[first]);
    paths_.push_back(path);
  }
  void value(const std::string& path, const NonTensor& value) override {
    require_valid_keys(path, value.value);
    collect_value_note(path, value.value, notes_);
  }

  const bool of_leaves_;
  Notes notes_;
  AliasFinder finder_;
  std::vector<std::string> paths_;
};

/// Calls `visit(pointer, value)` for `value` and all nested values, with their JSON pointers. A
/// Counter and the object inside it have the same pointer.
template <class AnyValue, class Visit>
void for_each_value(AnyValue& value, std::string& pointer, const Visit& visit) {
  visit(std::as_const(pointer), value);
  const std::size_t size = pointer.size();
  const auto items = [&](auto& list) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      pointer.append("/").append(std::to_string(i));
      for_each_value(list[i], pointer, visit);
      pointer.resize(size);
    }
  };
  if (auto* list = std::get_if<Value::List>(&value.data())) items(list->items);
  if (auto* tuple = std::get_if<Value::Tuple>(&value.data())) items(tuple->items);
  if (auto* special = std::get_if<Value::Special>(&value.data())) {
    if (special->type == Value::Special::Type::counter && !special->items.empty()) {
      for_each_value(special->items.front(), pointer, visit);
    } else {
      items(special->items);
    }
  }
  if (auto* object = std::get_if<Value::Object>(&value.data())) {
    for (auto& [key, member] : object->members) {
      pointer.push_back('/');
      for (const char c : key) {
        if (c == '~') {
          pointer.append("~0");
        } else if (c == '/') {
          pointer.append("~1");
        } else {
          pointer.push_back(c);
        }
      }
      for_each_value(member, pointer, visit);
      pointer.resize(size);
    }
  }
}

/// The types that a value note records for one location in the value.
struct Marks {
  bool tuple = false;
  bool int_keys = false;
  bool ordered = false;
  const TypedKeys* typed_keys = nullptr;
  std::optional<Value::Special::Type> type;

  bool of_object() const { return int_keys || ordered || typed_keys != nullptr; }
};

bool has_all(const Value::Object& object, const TypedKeys& keys) {
  std::vector<std::string> texts;
  texts.reserve(object.members.size());
  for (const auto& [text, member] : object.members) texts.push_back(text);
  return are_all_among(keys, texts);
}

bool marks_fit(const Marks& marks, const Value& value) {
  if (marks.type && *marks.type != Value::Special::Type::counter) {
    return !marks.tuple && !marks.of_object() && special_from_json(*marks.type, value).has_value();
  }
  if (marks.tuple && marks.type) return false;
  if (marks.tuple) return value.is<Value::List>() && !marks.of_object();
  const auto* object = value.get_if<Value::Object>();
  if (object == nullptr) return false;
  if (marks.typed_keys != nullptr) return !marks.int_keys && has_all(*object, *marks.typed_keys);
  return !marks.int_keys ||
         std::all_of(object->members.begin(), object->members.end(),
                     [](const auto& member) { return is_int_key(member.first); });
}

void apply_marks(const Marks& marks, Value& value) {
  if (marks.tuple) {
    value = Value::Tuple{std::move(std::get<Value::List>(value.data()).items)};
    return;
  }
  if (auto* object = std::get_if<Value::Object>(&value.data())) {
    object->int_keys |= marks.int_keys;
    object->ordered |= marks.ordered;
    if (marks.typed_keys != nullptr) object->typed_keys = *marks.typed_keys;
  }
  if (marks.type) value = *special_from_json(*marks.type, value);
}

/// Applies the marks bottom-up: an extended scalar is made from a copy of its value, so the marks
/// inside that value must be applied before. Returns false if a resulting extended scalar has no
/// counterpart in Python.
bool apply_all(std::vector<std::pair<const Marks*, Value*>>& places) {
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    apply_marks(*place->first, *place->second);
    const auto* special = place->second->get_if<Value::Special>();
    if (special != nullptr && !is_valid(*special)) return false;
  }
  return true;
}

void warn_stale_node(const base::Where& where, std::string_view path, NodeKind noted,
                     std::string_view expected, std::string_view found) {
  warn(where.text() + ": node " + base::quote(path) + ": kind " + base::quote(to_string(noted)) +
       " is ignored: expected " + std::string(expected) + ", found " + std::string(found) +
       "; another tool may have changed the tree");
}

/// True if a node with that note can have these keys.
bool keys_fit(const Notes::NodeNote& note, std::span<const std::string> keys) {
  if (note.kind == NodeKind::list || note.kind == NodeKind::tuple) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!is_position_key(keys[i], i)) return false;
    }
  }
  if (note.kind == NodeKind::sparse && !are_sparse_parts(keys, note.layout)) return false;
  if (!are_all_among(note.typed_keys, keys)) return false;
  if (note.is_bare && (keys.size() != 1 || keys[0] != kBareKey)) return false;
  return !note.int_keys ||
         std::all_of(keys.begin(), keys.end(), [](const auto& key) { return is_int_key(key); });
}

std::string_view wanted_keys(const Notes::NodeNote& note) {
  return note.int_keys                   ? "keys that are integers"
         : !note.typed_keys.empty()      ? "the keys that were recorded in the notes"
         : note.kind == NodeKind::sparse ? "the parts of a sparse tensor"
         : note.is_bare                  ? "the key \"value\" alone"
                                         : "keys \"0\", \"1\", ...";
}

}  // namespace

bool has_note(NodeKind kind) noexcept {
  return kind == NodeKind::dict || kind == NodeKind::ordered_dict || kind == NodeKind::list ||
         kind == NodeKind::tuple || kind == NodeKind::sparse;
}

bool Notes::empty() const {
  return nodes.empty() && values.empty() && aliases.empty() && leaves.empty() && files.empty() &&
         unbatched.empty() && !schema.has_value() && metadata.empty();
}

std::string note_path_child(std::string_view parent, std::string_view key) {
  std::string path(parent);
  append_note_key(path, key);
  return path;
}

std::string note_path(const KeyPath& path) {
  std::string text;
  for (const std::string& key : path) append_note_key(text, key);
  return text;
}

std::optional<KeyPath> keys_of_note_path(std::string_view path) {
  KeyPath keys;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    std::string_view part = path.substr(0, slash);
    if (part.empty() || slash == path.size() - 1) return std::nullopt;
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    std::string& key = keys.emplace_back();
    if (part == "%") continue;
    while (!part.empty()) {
      const std::size_t literal = std::min(part.find('%'), part.size());
      key.append(part.substr(0, literal));
      part.remove_prefix(literal);
      if (part.empty()) break;
      if (!part.starts_with("%25") && !part.starts_with("%2F")) return std::nullopt;
      key.push_back(part.starts_with("%25") ? '%' : '/');
      part.remove_prefix(3);
    }
  }
  return keys;
}

void require_valid_info(std::string_view path, const TensorDict& node) {
  const NodeInfo& info = node.info();
  const bool is_dict = info.kind == NodeKind::dict || info.kind == NodeKind::ordered_dict;
  if ((info.int_keys || !info.typed_keys.empty()) && !is_dict) {
    throw refuse_entry(path)
        .part(info.int_keys ? "int_keys" : "typed_keys")
        .expected("a node of kind \"dict\" or \"ordered_dict\"")
        .found(base::quote(to_string(info.kind)));
  }
  if (!info.device.empty() && !is_torch_device(info.device)) {
    throw refuse_entry(path)
        .part("device")
        .expected("a type and optionally an index of at most 127, as in \"cuda:0\"")
        .found(base::quote(info.device));
  }
  if (!info.names.empty() && info.names.size() != info.batch_size.size()) {
    throw refuse_entry(path)
        .part("names")
        .expected("one for each of ", info.batch_size.size(), " batch dimensions")
        .found(info.names.size());
  }
  for (const auto& name : info.names) {
    if (name) require_text(path, "names", *name);
  }
  require_text(path, "class_name", info.class_name);
  if (info.stack_dim_name) require_text(path, "stack_dim_name", *info.stack_dim_name);
  for (const std::int64_t length : info.batch_size) {
    if (length >= 0) continue;
    throw refuse_entry(path).part("batch_size").expected("lengths of 0 or more").found(length);
  }
  const bool is_stack = info.kind == NodeKind::lazy_stack;
  if (is_stack && (info.stack_dim < 0 || info.stack_dim > kMaxStackDim)) {
    throw refuse_entry(path)
        .part("stack_dim")
        .expected("0 to ", kMaxStackDim)
        .found(info.stack_dim);
  }
  require_valid_types(path, info);
}

void require_valid_keys(std::string_view path, const Value& value) {
  if (const auto* object = value.get_if<Value::Object>()) require_valid_types(path, *object);
  for_each_child(value, [&](const Value& child) { require_valid_keys(path, child); });
}

Notes collect_notes(const TensorDict& tree, bool of_leaves) {
  NotesCollector collector(of_leaves);
  walk(tree, collector);
  return collector.take();
}

void collect_value_note(std::string_view path, const Value& value, Notes& notes) {
  Notes::ValueNote note;
  std::string pointer;
  for_each_value(value, pointer, [&note](const std::string& at, const Value& part) {
    if (part.is<Value::Tuple>()) note.tuples.push_back(at);
    if (const auto* special = part.get_if<Value::Special>()) note.types.emplace(at, special->type);
    if (const auto* object = part.get_if<Value::Object>()) {
      if (object->int_keys) note.int_keys.push_back(at);
      if (!object->typed_keys.empty()) note.typed_keys.emplace(at, object->typed_keys);
      if (object->ordered) note.ordered.push_back(at);
    }
  });
  if (!note.empty()) notes.values.insert_or_assign(std::string(path), std::move(note));
}

void apply_node_note(const Notes& notes, std::string_view path, NodeInfo& info,
                     const base::Where& where) {
  const auto found = notes.nodes.find(path);
  if (found == notes.nodes.end()) return;
  const Notes::NodeNote& note = found->second;
  if (info.kind != NodeKind::tensordict && info.kind != note.kind) {
    warn_stale_node(where, path, note.kind, "a tensordict node",
                    "one of kind " + base::quote(to_string(info.kind)));
    return;
  }
  info.kind = note.kind;
  info.int_keys = note.int_keys;
  info.typed_keys = note.typed_keys;
  info.layout = note.layout;
  info.dense_shape = note.dense_shape;
  info.is_coalesced = note.is_coalesced;
  info.module_versions = note.module_versions;
  info.is_bare = note.is_bare;
}

void apply_node_note(const Notes& notes, std::string_view path, std::span<const std::string> keys,
                     NodeInfo& info, const base::Where& where) {
  const auto found = notes.nodes.find(path);
  if (found == notes.nodes.end()) return;
  if (!keys_fit(found->second, keys)) {
    warn_stale_node(where, path, found->second.kind, wanted_keys(found->second), "others");
    return;
  }
  apply_node_note(notes, path, info, where);
}

bool apply_value_note(const Notes& notes, std::string_view path, Value& value,
                      const base::Where& where) {
  const auto found = notes.values.find(path);
  if (found == notes.values.end()) return true;
  std::unordered_map<std::string_view, Marks> marks;
  for (const std::string& pointer : found->second.tuples) marks[pointer].tuple = true;
  for (const std::string& pointer : found->second.int_keys) marks[pointer].int_keys = true;
  for (const std::string& pointer : found->second.ordered) marks[pointer].ordered = true;
  for (const auto& [pointer, type] : found->second.types) marks[pointer].type = type;
  for (const auto& [pointer, keys] : found->second.typed_keys) marks[pointer].typed_keys = &keys;

  // All or nothing: change a copy, and assign it only if all marks fit.
  Value changed = value;
  std::vector<std::pair<const Marks*, Value*>> places;
  bool fits = true;
  std::string pointer;
  for_each_value(changed, pointer, [&](const std::string& at, Value& part) {
    const auto mark = marks.find(at);
    if (mark == marks.end()) return;
    fits = fits && marks_fit(mark->second, part);
    places.emplace_back(&mark->second, &part);
  });
  if (!fits || places.size() != marks.size() || !apply_all(places)) {
    warn(where.text() + ": value " + base::quote(path) +
         ": its notes of tuples, key types, ordered dicts and extended scalars are ignored: "
         "expected the value that they describe, found another value; another tool may have "
         "changed the tree");
    return false;
  }
  value = std::move(changed);
  return true;
}

}  // namespace tenfold
