#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/json/json.hpp"
#include "core/notes/notes.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "core/value/value_json.hpp"
#include "formats/safetensors/stack.hpp"
#include "formats/safetensors/tree.hpp"
#include "formats/shared/storable.hpp"

namespace tenfold::detail::formats::safetensors {
namespace {

void check_key(const std::string& path, std::string_view key) {
  require_utf8(key, [&] { return refuse_key(path); });
}

void check_leaf(const std::string& path, const Leaf& leaf) {
  require_dense(leaf, [&] { return refuse_key(path); });
  if (!name_of_dtype(leaf.dtype())) {
    throw refuse_key(path)
        .problem("the dtype cannot be stored")
        .expected("one that safetensors has")
        .found(to_string(leaf.dtype()))
        .remedy("save in the format \"memmap\", which supports it");
  }
  if (leaf.dtype() != DType::float4_e2m1fn_x2) return;
  if (leaf.shape().empty()) {
    throw refuse_key(path)
        .problem("a float4_e2m1fn_x2 tensor without dimensions cannot be stored")
        .expected("at least one dimension")
        .found("none");
  }
  // torch counts pairs of 4-bit numbers in the last dimension, but the header counts the numbers,
  // so it doubles this dimension. Only in a tensor without elements can this overflow.
  constexpr std::int64_t kMaxPairs = std::numeric_limits<std::int64_t>::max() / 2;
  if (leaf.shape().back() > kMaxPairs) {
    throw refuse_key(path)
        .problem("a float4_e2m1fn_x2 tensor of this shape cannot be stored")
        .expected("a last dimension of at most ", kMaxPairs)
        .found(leaf.shape().back());
  }
}

/// Throws if readers would refuse the tensor, because its shape does not begin with the batch size
/// of its node.
void check_batch(const std::string& path, const Leaf& leaf, const NodeInfo& node) {
  if (leaf.is_unbatched()) return;
  require_batch(leaf.shape(), node.batch_size, [&] { return refuse_key(path); });
}

/// Finds leaves that are the same stored tensor: the same bytes with the same dtype and shape.
class TiedTensors {
 public:
  explicit TiedTensors(std::size_t expected = 0) { first_.reserve(expected); }

  /// Returns the number of an earlier leaf that is the same tensor. If there is none, returns
  /// `number`, and adds `leaf` with this number if the leaf has a stored_range(). `leaf_of(n)`
  /// returns the leaf that was added as `n`.
  template <class LeafOf>
  std::size_t add(const Leaf& leaf, std::size_t number, const LeafOf& leaf_of) {
    const StoredRange bytes = stored_range(leaf);
    if (bytes == StoredRange{}) return number;
    const auto [found, added] = first_.try_emplace(bytes, number);
    if (added) return number;
    // The same bytes with another dtype or shape are another tensor.
    auto& seen = others_[found->second];
    if (seen.empty()) seen.push_back(found->second);
    for (const std::size_t other : seen) {
      const Leaf& held = leaf_of(other);
      if (held.dtype() == leaf.dtype() && held.shape() == leaf.shape()) return other;
    }
    seen.push_back(number);
    return number;
  }

 private:
  std::unordered_map<StoredRange, std::size_t> first_;
  /// For bytes that several leaves have: maps the number of the first tensor with these bytes to
  /// the numbers of all tensors with them, which differ in dtype or shape. Includes the first.
  std::unordered_map<std::size_t, std::vector<std::size_t>> others_;
};

/// Returns, for each leaf, the index of the leaf that is stored for it. Among leaves that are the
/// same tensor, the one whose key is first in byte order is stored, as in safetensors' save_model.
std::vector<std::size_t> deduplicated(const std::vector<std::string>& keys,
                                      const std::vector<Leaf>& leaves) {
  std::vector<std::size_t> order(leaves.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::size_t> kept(leaves.size());
  const auto leaf_of = [&](std::size_t i) -> const Leaf& { return leaves[i]; };
  const auto tie = [&] {
    TiedTensors tied(leaves.size());
    for (const std::size_t i : order) kept[i] = tied.add(leaves[i], i, leaf_of);
  };
  tie();
  if (kept == order) return kept;  // without aliases, the order does not matter
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  tie();
  return kept;
}

/// Plans a dict or OrderedDict of tensors, none of which is unbatched, as a plain file without a
/// structure document (kStructureMember). Returns nullopt for any other tree, if a key is
/// "__metadata__", or if the key of an alias is that of a reserved member of the header.
std::optional<Plan> plan_flat(const TensorDict& tree) {
  const NodeKind kind = tree.kind();
  if (kind != NodeKind::dict && kind != NodeKind::ordered_dict) return std::nullopt;
  Plan plan;
  plan.flat = true;
  std::vector<Leaf> leaves;
  bool flat = true;
  tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    flat = flat && leaf != nullptr && !leaf->is_unbatched() && key != "__metadata__";
    if (!flat) return;
    check_key(key, key);
    check_leaf(key, *leaf);
    plan.keys.push_back(key);
    leaves.push_back(*leaf);
  });
  if (!flat) return std::nullopt;

  const std::vector<std::size_t> kept = deduplicated(plan.keys, leaves);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (kept[i] == i) {
      plan.tensors.push_back({plan.keys[i], std::move(leaves[i])});
    } else if (is_reserved_member(plan.keys[i])) {
      return std::nullopt;
    } else {
      plan.metadata.emplace(plan.keys[i], plan.keys[kept[i]]);
    }
  }
  return plan;
}

/// True if the parts of a lazy stack along dimension `dim` can be stored without loss as one level
/// of the structure document (StructureLevel in tree.cpp), in which their tensors are stacked.
bool can_be_stacked(const std::vector<TensorDict>& parts, std::int64_t dim);

bool items_can_be_stacked(const std::vector<TensorDict::Item>& items, std::int64_t dim) {
  const TensorDict::Item& first = items.front();
  if (const auto* leaf = std::get_if<Leaf>(&first)) {
    const bool has_dim = static_cast<std::size_t>(dim) <= leaf->shape().size();
    if (!has_dim && !leaf->is_unbatched()) return false;
    return std::all_of(items.begin(), items.end(), [&](const TensorDict::Item& item) {
      const auto* other = std::get_if<Leaf>(&item);
      if (other == nullptr || other->is_nested() || other->dtype() != leaf->dtype() ||
          other->shape() != leaf->shape() || other->is_unbatched() != leaf->is_unbatched()) {
        return false;
      }
      if (!leaf->is_unbatched() || items.size() == 1) return true;
      return stored_range(*leaf) != StoredRange{} && stored_range(*other) == stored_range(*leaf);
    });
  }
  if (const auto* value = std::get_if<NonTensor>(&first)) {
    Notes marks;
    collect_value_note("", value->value, marks);
    if (value->is_stack || !marks.empty()) return false;
    // Equal values may differ in the order of an object's members, or in the sign of a zero.
    const std::string json = to_json(value->value);
    return std::all_of(items.begin(), items.end(), [&](const TensorDict::Item& item) {
      const auto* other = std::get_if<NonTensor>(&item);
      return other != nullptr && *other == *value && to_json(other->value) == json;
    });
  }
  std::vector<TensorDict> nodes;
  for (const TensorDict::Item& item : items) {
    const auto* node = std::get_if<TensorDict>(&item);
    if (node == nullptr) return false;
    nodes.push_back(*node);
  }
  return can_be_stacked(nodes, dim);
}

std::vector<TensorDict::Item> items_of(const std::vector<TensorDict>& parts,
                                       const std::string& key) {
  std::vector<TensorDict::Item> items;
  items.reserve(parts.size());
  for (const TensorDict& part : parts) items.push_back(part.get(key));
  return items;
}

bool can_be_stacked(const std::vector<TensorDict>& parts, std::int64_t dim) {
  if (parts.empty()) return false;
  const NodeInfo& info = parts.front().info();
  if (info.kind != NodeKind::tensordict && info.kind != NodeKind::tensorclass) return false;
  // A nested node may have fewer batch dimensions than the node around it.
  if (dim < 0 || static_cast<std::size_t>(dim) > info.batch_size.size()) return false;
  const std::vector<std::string> keys = parts.front().keys();
  for (const TensorDict& part : parts) {
    const NodeInfo& other = part.info();
    if (other.kind != info.kind || other.class_name != info.class_name ||
        other.batch_size != info.batch_size || other.names != info.names ||
        other.device != info.device || part.keys() != keys) {
      return false;
    }
  }
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
    return items_can_be_stacked(items_of(parts, key), dim);
  });
}

/// Returns what `node`, an entry of a lazy stack that is stored as stacked tensors, and all entries
/// below it add to the count of kMaxStackItems. `names` are the dim names of the node including the
/// dimension of the stack; `path_bytes` is the size of its dotted path.
std::uint64_t count_items(const TensorDict& node, const DimNames& names, std::uint64_t path_bytes) {
  const NodeInfo& info = node.info();
  std::uint64_t count = extra_stack_items(path_bytes, info.batch_size.size() + 1, names,
                                          info.class_name, info.device);
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    const auto* value = std::get_if<NonTensor>(&item);
    count += stack_items(key, leaf == nullptr ? 0 : leaf->shape().size() + 1,
                         value == nullptr ? nullptr : &value->value);
    if (const auto* child = std::get_if<TensorDict>(&item)) {
      count += count_items(*child, child->info().names, child_path_bytes(path_bytes, key));
    }
  });
  return count;
}

/// Writes the structure document (kStructureMember) and collects the tensors.
class StructurePlanner {
 public:
  explicit StructurePlanner(Plan& plan) : plan_(plan), json_(codecs::JsonStyle::python) {}

  std::string run(const TensorDict& tree) {
    json_.begin_object();
    json_.member("version", 1);
    json_.key("root");
    level(tree, "");
    json_.end_object();
    return json_.take();
  }

 private:
  void level(const TensorDict& tree, const std::string& prefix) {
    const NodeInfo& info = tree.info();
    if (info.kind == NodeKind::lazy_stack) {
      stack(tree, prefix);
      return;
    }
    json_.begin_object();
    const bool batched = info.kind == NodeKind::tensordict || info.kind == NodeKind::tensorclass;
    write_batch(batched ? info.batch_size : Shape{}, batched ? info.names : DimNames{});
    if (!info.device.empty()) {
      json_.member("device", info.device);
    }
    write_class(info);
    begin_keys();
    tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
      const std::string name = child_name(prefix, key);
      const auto* leaf = std::get_if<Leaf>(&item);
      if (batched && leaf != nullptr) check_batch(name, *leaf, info);
      entry(key, item, name);
    });
    json_.end_object();
    json_.end_object();
  }

  void stack(const TensorDict& tree, const std::string& prefix) {
    const NodeInfo& info = tree.info();
    std::vector<TensorDict> parts;
    bool all_nodes = true;
    tree.for_each([&](const std::string&, const TensorDict::Item& item) {
      const auto* part = std::get_if<TensorDict>(&item);
      all_nodes = all_nodes && part != nullptr;
      if (part != nullptr) parts.push_back(*part);
    });
    if (all_nodes && can_be_stacked(parts, info.stack_dim) && count_stack(parts, info, prefix)) {
      stacked_level(parts, info.stack_dim, &info, prefix);
      return;
    }
    json_.begin_object();
    write_batch({}, {});
    json_.key("lazy_stack");
    json_.begin_object();
    json_.member("stack_dim", info.stack_dim);
    if (info.stack_dim_name) {
      json_.member("name", *info.stack_dim_name);
    }
    json_.end_object();
    begin_keys();
    tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
      entry(key, item, child_name(prefix, key));
    });
    json_.end_object();
    json_.end_object();
  }

  /// Adds the entries of a lazy stack, and the entries below them, to the count of kMaxStackItems,
  /// as a reader does. Returns false, and counts nothing, if a reader would refuse so many.
  bool count_stack(const std::vector<TensorDict>& parts, const NodeInfo& stack,
                   const std::string& prefix) {
    DimNames names = parts.front().info().names;
    names.push_back(stack.stack_dim_name);
    const std::uint64_t per_part = 1 + count_items(parts.front(), names, prefix.size());
    if (parts.size() > (kMaxStackItems - num_stack_items_) / per_part) return false;
    num_stack_items_ += parts.size() * per_part;
    return true;
  }

  /// Writes nodes as one level (StructureLevel in tree.cpp): `parts` are the entries of the lazy
  /// stack with the info `stack` or, if `stack` is null, the nodes that such entries have under one
  /// key.
  void stacked_level(const std::vector<TensorDict>& parts, std::int64_t dim, const NodeInfo* stack,
                     const std::string& prefix) {
    const NodeInfo& info = parts.front().info();
    Shape batch_size = info.batch_size;
    batch_size.insert(batch_size.begin() + dim, static_cast<std::int64_t>(parts.size()));
    DimNames names = info.names;
    const bool named = stack != nullptr && stack->stack_dim_name.has_value();
    if (names.empty() && named) names.resize(info.batch_size.size());
    if (!names.empty()) {
      names.insert(names.begin() + dim, named ? stack->stack_dim_name : std::nullopt);
    }
    json_.begin_object();
    write_batch(batch_size, names);
    json_.member("stack_dim", dim);
    if (!info.device.empty()) {  // the device of each entry
      json_.member("device", info.device);
    }
    write_class(info);
    begin_keys();
    for (const std::string& key : parts.front().keys()) {
      std::vector<TensorDict::Item> items = items_of(parts, key);
      const std::string name = child_name(prefix, key);
      check_key(name, key);
      json_.key(key);
      json_.begin_object();
      if (const auto* leaf = std::get_if<Leaf>(&items.front())) {
        check_batch(name, *leaf, info);
        tensor(leaf->is_unbatched() ? *leaf : stacked_leaf(items, dim), name);
      } else if (const auto* value = std::get_if<NonTensor>(&items.front())) {
        json_.key("non_tensor");
        write_json(value->value, json_);
      } else {
        std::vector<TensorDict> nodes;
        for (auto& item : items) nodes.push_back(std::get<TensorDict>(std::move(item)));
        json_.key("td");
        stacked_level(nodes, dim, nullptr, name);
      }
      json_.end_object();
    }
    json_.end_object();
    json_.end_object();
  }

  static Leaf stacked_leaf(const std::vector<TensorDict::Item>& items, std::int64_t dim) {
    std::vector<Leaf> leaves;
    leaves.reserve(items.size());
    for (const auto& item : items) leaves.push_back(std::get<Leaf>(item));
    return stack_leaves(std::move(leaves), dim);
  }

  void entry(const std::string& key, const TensorDict::Item& item, const std::string& name) {
    check_key(name, key);
    json_.key(key);
    try {
      entry(item, name);
    } catch (const Error& error) {
      if (!error.part().empty() || !error.path().empty()) throw;
      throw Error(error)
          .within("key ", base::quote(name))
          .remedy("save as a folder, which supports deeper nesting");
    }
  }

  void entry(const TensorDict::Item& item, const std::string& name) {
    json_.begin_object();
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      tensor(*leaf, name);
    } else if (const auto* value = std::get_if<NonTensor>(&item)) {
      json_.key("non_tensor");
      write_json(value->value, json_);
      if (value->is_stack) {
        json_.member("stack_dim", value->stack_dim);
      }
    } else {
      json_.key("td");
      level(std::get<TensorDict>(item), name);
    }
    json_.end_object();
  }

  void tensor(const Leaf& leaf, const std::string& wanted_name) {
    check_leaf(wanted_name, leaf);
    const std::size_t number = plan_.tensors.size();
    const std::size_t kept = tied_.add(
        leaf, number, [&](std::size_t i) -> const Leaf& { return plan_.tensors[i].leaf; });
    if (kept == number) plan_.tensors.push_back({free_name(wanted_name), leaf});
    json_.member("tensor", plan_.tensors[kept].name);
    if (leaf.is_unbatched()) {
      json_.member("unbatched", true);
    }
  }

  /// Returns a unique name. The keys "a.b" and ("a", "b") have the same dotted name: the second
  /// becomes "a.b~2".
  std::string free_name(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 2; name == "__metadata__" || !names_.insert(name).second; ++i) {
      name = wanted + "~" + std::to_string(i);
    }
    return name;
  }

  std::string child_name(const std::string& prefix, const std::string& key) {
    return prefix.empty() ? key : prefix + "." + key;
  }

  void write_batch(const Shape& batch_size, const DimNames& names) {
    json_.member("batch_size", batch_size);
    json_.member("names", names.empty() ? std::nullopt : std::optional(names));
  }
  void write_class(const NodeInfo& info) {
    if (info.class_name.empty()) return;
    json_.member("class", info.class_name);
  }
  void begin_keys() {
    json_.key("keys");
    json_.begin_object();
  }

  Plan& plan_;
  codecs::JsonWriter json_;
  TiedTensors tied_;
  std::unordered_set<std::string> names_;
  std::uint64_t num_stack_items_ = 0;  ///< the count that kMaxStackItems limits
};

/// Adds the user's `__metadata__`. Throws Error(invalid_argument) for a key that is reserved or the
/// key of an alias, unless the plan already has it with the same value. For a flat file, also
/// throws for a member that readers would take for an alias: its value is the name of a tensor, but
/// its key is not.
void add_metadata(Plan& plan, const std::map<std::string, std::string>& metadata) {
  std::unordered_set<std::string_view> names;
  for (const Plan::Tensor& tensor : plan.tensors) names.insert(tensor.name);
  for (const auto& [key, text] : metadata) {
    const auto own = plan.metadata.find(key);
    if (own != plan.metadata.end() && own->second == text) continue;
    if (is_reserved_member(key) || own != plan.metadata.end()) {
      throw base::invalid_argument()
          .part("metadata ", base::quote(key))
          .problem("safetensors files of tenfold use this key")
          .expected("another key")
          .found(base::quote(key));
    }
    if (plan.flat && names.contains(text) && !names.contains(key)) {
      throw base::invalid_argument()
          .part("metadata ", base::quote(key))
          .expected("a string that is not a tensor's name")
          .found(base::quote(text), ", which tenfold reads as an alias")
          .remedy("choose another string");
    }
    plan.metadata.emplace(key, text);
  }
}

}  // namespace

Plan make_plan(const TensorDict& tree, bool notes) {
  // Omit the notes of leaves, because the structure document or the members for aliases describe
  // them. Collect the notes first, because the errors of collect_notes() name the node.
  Notes collected = notes ? collect_notes(tree, false) : Notes();
  std::optional<Plan> flat = plan_flat(tree);
  Plan plan = flat ? std::move(*flat) : Plan{};
  if (!plan.flat) {
    plan.metadata.emplace(kStructureMember, StructurePlanner(plan).run(tree));
  }
  plan.metadata.insert_or_assign(std::string(kFormatMember), "pt");
  add_metadata(plan, tree.info().metadata);
  if (!notes) return plan;
  // Omit the kind dict, because it is the default of a plain file.
  collected.schema = tree.info().schema;
  const auto root = collected.nodes.find("");
  if (plan.flat && root != collected.nodes.end() &&
      root->second == Notes::NodeNote{NodeKind::dict, false}) {
    collected.nodes.erase(root);
  }
  if (!collected.empty()) plan.metadata.emplace(kNotesMember, collected.to_json());
  return plan;
}

std::vector<std::size_t> reference_order(const std::vector<Plan::Tensor>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<int> ranks;
  ranks.reserve(tensors.size());
  for (const auto& tensor : tensors) ranks.push_back(order_of_dtype(tensor.leaf.dtype()));
  const auto before = [&](std::size_t a, std::size_t b) {
    return ranks[a] != ranks[b] ? ranks[a] < ranks[b] : tensors[a].name < tensors[b].name;
  };
  if (!std::is_sorted(order.begin(), order.end(), before)) {
    std::sort(order.begin(), order.end(), before);
  }
  return order;
}

void add_order(Plan& plan, const std::vector<std::string_view>& stored_names) {
  if (std::ranges::equal(plan.keys, stored_names)) return;
  std::unordered_map<std::string_view, std::size_t> positions;
  positions.reserve(plan.keys.size());
  for (const std::string_view name : stored_names) positions.emplace(name, positions.size());
  for (const auto& [dropped, kept] : plan.metadata) {
    const auto tensor = positions.find(kept);
    // `positions` also has the aliases found so far, after the stored tensors. A member that names
    // one of them belongs to the user's metadata, because the member of an alias names a stored
    // tensor.
    const bool is_alias = !is_reserved_member(dropped) && tensor != positions.end() &&
                          tensor->second < stored_names.size();
    if (is_alias) positions.emplace(dropped, positions.size());
  }
  std::string text;
  bool changed = false;
  for (std::size_t i = 0; i < plan.keys.size(); ++i) {
    const std::size_t position = positions.at(plan.keys[i]);
    changed = changed || position != i;
    if (i > 0) text += ' ';
    text += std::to_string(position);
  }
  if (changed) plan.metadata.insert_or_assign(std::string(kOrderMember), std::move(text));
}

}  // namespace tenfold::detail::formats::safetensors
