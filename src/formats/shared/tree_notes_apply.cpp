#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tensor/torch_names.hpp"
#include "core/tree/batch.hpp"
#include "core/tree/node.hpp"
#include "core/value/value_json.hpp"
#include "formats/shared/tree_notes.hpp"

namespace tenfold::detail::formats {
namespace {

using Object = Value::Object;

[[noreturn]] void corrupt(const base::Where& where, const std::string& member,
                          const std::string& expected, const Value& found) {
  throw base::corrupt(where).part(base::quote(member)).expected(expected).found(short_json(found));
}

/// Returns the container at `key` as a node. If it is a value, because it has no tensors, replaces
/// it in `parent` by a node. Returns nullopt if there is no such entry, or if it is not a
/// container.
std::optional<TensorDict> child_node(TensorDict& parent, const std::string& key) {
  if (!parent.contains(key)) return std::nullopt;
  const TensorDict::Item item = parent.get(key);
  if (const auto* node = std::get_if<TensorDict>(&item)) return *node;
  const auto* plain = std::get_if<NonTensor>(&item);
  if (plain == nullptr) return std::nullopt;
  std::optional<TensorDict> made = node_of_value(plain->value, parent.where() + "/" + key);
  if (made) parent.set(key, *made);
  return made;
}

/// Returns the shape of a tensor or the batch size of a node: it must start with the batch size of
/// the enclosing node. Returns nullopt for entries without this requirement.
std::optional<Shape> batch_of(const TensorDict::Item& item) {
  if (const auto* leaf = std::get_if<Leaf>(&item)) {
    return leaf->is_unbatched() ? std::nullopt : std::optional(leaf->shape());
  }
  const auto* node = std::get_if<TensorDict>(&item);
  if (node == nullptr) return std::nullopt;
  const NodeKind kind = node->kind();
  if (kind == NodeKind::tensordict || kind == NodeKind::tensorclass) return node->batch_size();
  return std::nullopt;
}

class Reader {
 public:
  Reader(const base::Where& where, TensorDict& tree) : where_(where), tree_(tree) {}

  void run(const Value& document) {
    const auto* members = document.get_if<Object>();
    if (members == nullptr) {
      throw base::corrupt(where_).expected("an object").found(document.type_name());
    }
    require_version(*members);
    for (const auto& [name, value] : members->members) {
      if (name == "nodes") {
        nodes(object(name, value));
      } else if (name == "stacks") {
        stacks(object(name, value));
      } else if (name == "unbatched") {
        unbatched(value);
      } else if (name == "versions") {
        versions(object(name, value));
      } else if (name == "schema") {
        tree_.info().schema = value;
      } else if (name == "metadata") {
        metadata(object(name, value));
      } else if (name != "version") {
        warn(where_.text() + ": " + base::quote(name) +
             " is ignored: expected a known member, found " +
             "another; a later version may have written it");
      }
    }
    apply_nodes();
  }

 private:
  struct Noted {
    std::string path;
    TensorDict node;
    NodeInfo info;
  };

  void require_version(const Object& members) const {
    const Value* version = members.find("version");
    if (version == nullptr) {
      throw base::corrupt(where_).part("\"version\"").expected("1").found("none");
    }
    const auto* number = version->get_if<std::int64_t>();
    if (number == nullptr) corrupt(where_, "version", "1", *version);
    if (*number < 1) throw base::corrupt(where_).part("\"version\"").expected("1").found(*number);
    if (*number > 1) {
      throw base::unsupported(where_)
          .part("\"version\"")
          .problem("written by a newer version of tenfold")
          .expected("1")
          .found(*number);
    }
  }

  const Object& object(const std::string& member, const Value& value) const {
    const auto* found = value.get_if<Object>();
    if (found == nullptr) corrupt(where_, member, "an object", value);
    return *found;
  }

  void stale(std::string_view path, const std::string& expected,
             std::string_view found = "something else") const {
    warn(where_.text() + ": the note of " + base::quote(path) + " is ignored: expected " +
         expected + ", found " + std::string(found) + "; another tool may have changed the tree");
  }

  /// Returns the parent node and the last key of a path. Warns and returns nullopt if the tree has
  /// no such path.
  std::optional<std::pair<TensorDict, std::string>> place(const std::string& path) {
    std::optional<KeyPath> keys = keys_of_note_path(path);
    std::optional<TensorDict> node = tree_;
    if (keys && !keys->empty()) {
      for (std::size_t i = 0; node && i + 1 < keys->size(); ++i)
        node = child_node(*node, (*keys)[i]);
      if (node && node->contains(keys->back())) return std::pair(*node, keys->back());
    }
    stale(path, "an entry at this path in the tree", "none");
    return std::nullopt;
  }

  std::optional<TensorDict> node_at(const std::string& path) {
    if (path.empty()) return tree_;
    auto found = place(path);
    if (!found) return std::nullopt;
    std::optional<TensorDict> node = child_node(found->first, found->second);
    if (!node) stale(path, "a container");
    return node;
  }

  void nodes(const Object& members) {
    for (const auto& [path, note] : members.members) {
      const Object& fields = object(path, note);
      const Value* kind = fields.find("kind");
      if (kind == nullptr) {
        throw base::corrupt(where_).part(base::quote(path)).expected("a \"kind\"").found("none");
      }
      const auto* kind_text = kind->get_if<std::string>();
      if (kind_text == nullptr) corrupt(where_, path, "a \"kind\" that is a string", *kind);
      NodeInfo info;
      const std::optional<NodeKind> known = node_kind_from_name(*kind_text);
      const bool noted = known == NodeKind::tensordict || known == NodeKind::tensorclass ||
                         known == NodeKind::lazy_stack;
      if (!noted) {
        stale(path, "the kind \"tensordict\", \"tensorclass\" or \"lazy_stack\"");
        continue;
      }
      info.kind = *known;
      read_info(path, fields, info);
      if (auto node = node_at(path)) noted_.push_back({path, *node, std::move(info)});
    }
  }

  void read_info(const std::string& path, const Object& fields, NodeInfo& info) const {
    std::string in_member;
    const auto text = [&](const Value& value) {
      const auto* found = value.get_if<std::string>();
      if (found == nullptr) corrupt(where_, path, "a string" + in_member, value);
      return *found;
    };
    const auto natural = [&](const Value& value) {
      const auto* found = value.get_if<std::int64_t>();
      if (found == nullptr || *found < 0)
        corrupt(where_, path, "an integer from 0" + in_member, value);
      return *found;
    };
    const auto list = [&](const Value& value) -> const std::vector<Value>& {
      const auto* found = value.get_if<Value::List>();
      if (found == nullptr) corrupt(where_, path, "an array" + in_member, value);
      return found->items;
    };
    for (const auto& [name, value] : fields.members) {
      in_member = " in member " + base::quote(name);
      if (name == "batch_size") {
        for (const Value& length : list(value)) info.batch_size.push_back(natural(length));
      } else if (name == "names") {
        for (const Value& dim : list(value)) {
          info.names.push_back(dim.is_null() ? std::nullopt : std::optional(text(dim)));
        }
      } else if (name == "class") {
        info.class_name = text(value);
      } else if (name == "device") {
        info.device = text(value);
        if (!is_torch_device(info.device))
          corrupt(where_, path, "a device of torch such as \"cuda:0\"", value);
      } else if (name == "stack_dim") {
        info.stack_dim = natural(value);
      } else if (name == "stack_dim_name") {
        info.stack_dim_name = text(value);
      }
    }
    if (!info.names.empty() && info.names.size() != info.batch_size.size()) {
      throw base::corrupt(where_)
          .part(base::quote(path))
          .expected(info.batch_size.size(), " names, one for each batch dimension")
          .found(info.names.size());
    }
  }

  /// Applies the notes of deeper nodes first, so that the entries of a stack have their final kinds
  /// when the stack is checked.
  void apply_nodes() {
    std::ranges::stable_sort(noted_, std::ranges::greater(), [](const Noted& noted) {
      return std::ranges::count(noted.path, '/') + (noted.path.empty() ? 0 : 1);
    });
    for (Noted& noted : noted_) {
      NodeInfo& now = noted.node.info();
      const bool is_stack = noted.info.kind == NodeKind::lazy_stack;
      if (now.kind != (is_stack ? NodeKind::list : NodeKind::dict) || now.int_keys ||
          !now.typed_keys.empty()) {
        stale(noted.path, is_stack ? "a list" : "a dict with string keys");
      } else if (is_stack ? !is_stackable(noted) : !is_batch(noted)) {
        stale(noted.path,
              is_stack
                  ? "nodes that can be stacked at dimension " + std::to_string(noted.info.stack_dim)
                  : "entries whose shapes start with " + base::list_text(noted.info.batch_size));
      } else {
        noted.info.schema = std::move(now.schema);
        noted.info.metadata = std::move(now.metadata);
        now = std::move(noted.info);
      }
    }
  }

  static bool is_batch(const Noted& noted) {
    bool fits = true;
    noted.node.for_each([&](const std::string&, const TensorDict::Item& item) {
      const std::optional<Shape> shape = batch_of(item);
      fits = fits && (!shape || starts_with(*shape, noted.info.batch_size));
    });
    return fits;
  }

  static bool is_stackable(const Noted& noted) {
    bool fits = true;
    noted.node.for_each([&](const std::string& key, const TensorDict::Item& item) {
      const auto* node = std::get_if<TensorDict>(&item);
      const bool is_node =
          node != nullptr && (node->kind() == NodeKind::lazy_stack || batch_of(item));
      fits = fits && is_node && !stack_dim_fault(noted.info.stack_dim, key, item);
    });
    return fits;
  }

  void stacks(const Object& members) {
    for (const auto& [path, dim] : members.members) {
      const auto* number = dim.get_if<std::int64_t>();
      if (number == nullptr || *number < 0) corrupt(where_, path, "a dimension", dim);
      auto found = place(path);
      if (!found) continue;
      TensorDict::Item item = found->first.get(found->second);
      auto* plain = std::get_if<NonTensor>(&item);
      if (plain == nullptr || !plain->value.is<Value::List>()) {
        stale(path, "a list of values");
        continue;
      }
      plain->is_stack = true;
      plain->stack_dim = *number;
      found->first.set(found->second, std::move(item));
    }
  }

  void unbatched(const Value& paths) {
    const auto* list = paths.get_if<Value::List>();
    if (list == nullptr) corrupt(where_, "unbatched", "an array", paths);
    for (const Value& entry : list->items) {
      const auto* path = entry.get_if<std::string>();
      if (path == nullptr) corrupt(where_, "unbatched", "paths", entry);
      auto found = place(*path);
      if (!found) continue;
      TensorDict::Item item = found->first.get(found->second);
      auto* leaf = std::get_if<Leaf>(&item);
      if (leaf == nullptr) {
        stale(*path, "a tensor");
        continue;
      }
      leaf->mark_unbatched();
      found->first.set(found->second, std::move(item));
    }
  }

  void versions(const Object& members) {
    for (const auto& [path, of_layers] : members.members) {
      object(path, of_layers);
      auto node = node_at(path);
      if (!node) continue;
      if (node->kind() == NodeKind::ordered_dict) {
        node->info().module_versions = of_layers;
      } else {
        stale(path, "an OrderedDict");
      }
    }
  }

  void metadata(const Object& members) {
    for (const auto& [key, value] : members.members) {
      const auto* text = value.get_if<std::string>();
      if (text == nullptr) corrupt(where_, key, "a string", value);
      tree_.info().metadata.insert_or_assign(key, *text);
    }
  }

  const base::Where& where_;
  TensorDict& tree_;
  std::vector<Noted> noted_;
};

}  // namespace

void apply_tree_notes(std::string_view json, const base::Where& where, TensorDict& tree) {
  Reader(where, tree).run(parse_value(json, where));
}

}  // namespace tenfold::detail::formats
