#include "formats/consolidated/sidecar.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "core/tree/sparse.hpp"

namespace tenfold::detail::formats::consolidated {
namespace {

constexpr std::string_view kMark = "tenfold";

void warn_ignored(const std::string& where, std::string_view member, std::string_view expected,
                  std::string_view found) {
  warn(where + ": member \"size\": " + std::string(member) + " is ignored: expected " +
       std::string(expected) + ", found " + std::string(found) +
       "; another tool may have changed the file");
}

bool is_permutation_of_positions(const std::vector<std::size_t>& order) {
  std::vector<bool> seen(order.size());
  for (const std::size_t position : order) {
    if (position >= order.size() || seen[position]) return false;
    seen[position] = true;
  }
  return true;
}

/// Parses a list of n items that is a permutation of the positions 0 to n - 1. Returns an empty
/// list for any other value.
std::vector<std::size_t> positions_of(const Value& value) {
  const auto* list = value.get_if<Value::List>();
  std::vector<std::size_t> order;
  if (list == nullptr) return order;
  for (const Value& item : list->items) {
    const auto* position = item.get_if<std::int64_t>();
    if (position == nullptr || *position < 0) return {};
    order.push_back(static_cast<std::size_t>(*position));
  }
  if (!is_permutation_of_positions(order)) order.clear();
  return order;
}

void read_order(const Value& value, const std::string& where, Sidecar& extra) {
  const auto* paths = value.get_if<Value::Object>();
  if (paths == nullptr) {
    warn_ignored(where, "\"order\"", "an object", value.type_name());
    return;
  }
  for (const auto& [path, positions] : paths->members) {
    std::vector<std::size_t> order = positions_of(positions);
    if (order.empty()) {
      warn_ignored(where, "\"order\" of " + base::quote(path), "a list with each position once",
                   "another value");
    } else {
      extra.order.insert_or_assign(path, std::move(order));
    }
  }
}

void apply_order(const Sidecar& extra, std::string_view path, Node& node) {
  const auto found = extra.order.find(path);
  if (found == extra.order.end()) return;
  const std::vector<std::size_t>& order = found->second;
  if (order.size() != node.entries.size()) {
    warn_ignored(node.where, "\"order\"", std::to_string(node.entries.size()) + " positions",
                 std::to_string(order.size()));
    return;
  }
  std::vector<Node::Entry> entries;
  entries.reserve(order.size());
  for (const std::size_t position : order) entries.push_back(std::move(node.entries[position]));
  node.entries = std::move(entries);
  node.index.clear();
}

}  // namespace

void write_sidecar(const Sidecar& extra, codecs::JsonWriter& json) {
  json.begin_array();
  json.string(kMark);
  json.begin_object();
  if (!extra.notes.empty()) json.member("notes", extra.notes.to_json());
  if (!extra.order.empty()) {
    json.key("order");
    json.begin_object();
    for (const auto& [path, order] : extra.order) json.member(path, order);
    json.end_object();
  }
  if (!extra.checksums.empty()) json.member("tenfold_xxh3", extra.checksums);
  json.end_object();
  json.end_array();
}

Sidecar read_sidecar(const Value& size, const std::string& where) {
  Sidecar extra;
  const auto* list = size.get_if<Value::List>();
  if (list == nullptr || list->items.size() != 2) return extra;
  const auto* mark = list->items[0].get_if<std::string>();
  const auto* object = list->items[1].get_if<Value::Object>();
  if (mark == nullptr || *mark != kMark || object == nullptr) return extra;
  for (const auto& [key, value] : object->members) {
    const auto* text = value.get_if<std::string>();
    if (key == "order") {
      read_order(value, where, extra);
    } else if (text == nullptr) {
      warn_ignored(where, base::quote(key), "a string", value.type_name());
    } else if (key == "notes") {
      extra.notes_where = {where, "notes"};
      extra.notes = Notes::from_json(*text, extra.notes_where);
    } else if (key == "tenfold_xxh3") {
      extra.checksums = *text;
    }
  }
  return extra;
}

void apply_extra(const Sidecar& extra, std::string_view path, Node& node) {
  if (extra.empty()) return;
  apply_order(extra, path, node);
  if (path.empty()) {
    node.info.schema = extra.notes.schema;
    node.info.metadata = extra.notes.metadata;
  }
  if (extra.notes.nodes.contains(path)) {
    std::vector<std::string> keys;
    for (const Node::Entry& entry : node.entries) keys.push_back(entry.key);
    apply_node_note(extra.notes, path, keys, node.info, extra.notes_where);
    if (node.info.kind == NodeKind::sparse) sort_sparse_parts(node);
  }
  if (extra.notes.values.empty()) return;
  for (Node::Entry& entry : node.entries) {
    if (auto* value = std::get_if<NonTensor>(&entry.slot)) {
      apply_value_note(extra.notes, note_path_child(path, entry.key), value->value,
                       extra.notes_where);
    }
  }
}

}  // namespace tenfold::detail::formats::consolidated
