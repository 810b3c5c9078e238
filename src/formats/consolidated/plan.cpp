#include "formats/consolidated/plan.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "core/tree/sparse.hpp"
#include "core/value/value_json.hpp"
#include "formats/consolidated/extra.hpp"
#include "formats/consolidated/tree.hpp"
#include "formats/shared/json_checksums.hpp"

namespace tenfold::detail::formats::consolidated {
namespace {

constexpr std::uint64_t kPadding = 8;

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::unsupported,
              "consolidated: " + (path.empty() ? "the root" : "key " + base::quote(path)) + ": " +
                  what + "; save as a folder, which holds it");
}

/// tensordict's table of dtypes ends before the eight-bit floats.
bool is_readable(DType dtype) { return dtype < DType::float8_e4m3fn; }

/// A list of values is a stack of stacks where all items are lists of one length, as tensordict
/// tells it when it loads a folder.
const Value::List* stacked_items(const Value& value) {
  const auto* list = value.get_if<Value::List>();
  if (list == nullptr || list->items.empty()) return nullptr;
  const auto* first = list->items.front().get_if<Value::List>();
  if (first == nullptr) return nullptr;
  const bool alike = std::ranges::all_of(list->items, [&](const Value& item) {
    const auto* inner = item.get_if<Value::List>();
    return inner != nullptr && inner->items.size() == first->items.size();
  });
  return alike ? list : nullptr;
}

/// How many containers lie in each other, `value` included.
std::size_t depth_of(const Value& value) {
  std::size_t deepest = 0;
  const auto below = [&](const Value& item) { deepest = std::max(deepest, depth_of(item)); };
  if (const auto* list = value.get_if<Value::List>()) {
    std::ranges::for_each(list->items, below);
  } else if (const auto* tuple = value.get_if<Value::Tuple>()) {
    std::ranges::for_each(tuple->items, below);
  } else if (const auto* object = value.get_if<Value::Object>()) {
    for (const auto& member : object->members) below(member.second);
  } else {
    return 0;
  }
  return deepest + 1;
}

/// Where a tensor was placed.
struct Placed {
  std::string key;
  std::size_t tensor = 0;  ///< of ConsolidatedPlan::tensors
  DType dtype = DType::float32;
  Shape shape;
  std::int64_t ragged_dim = 0;  ///< of the offsets of a jagged tensor
};

struct Level;
using Child = std::variant<Level, NonTensor>;

/// A node, its entries in the three groups of the document.
struct Level {
  const NodeInfo* info = nullptr;
  TensorDict node;  ///< keeps `info`
  std::vector<std::pair<std::string, Value>> values;
  std::vector<Placed> leaves;
  std::vector<std::pair<std::string, Child>> nodes;
};

/// Places the tensors of a tree, depth first, in the order of its keys.
class Placer {
 public:
  Placer(bool notes, Plan& plan, Extra& extra) : notes_(notes), plan_(plan), extra_(extra) {}

  Level level(const TensorDict& tree, const std::string& path, std::size_t depth) {
    check_depth(path, depth, 0);
    Level level;
    level.node = tree;
    level.info = &level.node.info();
    const bool is_stack = tree.kind() == NodeKind::lazy_stack;
    if (is_jagged(tree)) {
      refuse(path, "it cannot be a file of its own: expected a TensorDict, found a jagged tensor");
    }
    if (tree.kind() == NodeKind::sparse && !notes_) {
      refuse(path,
             "tensordict's own file cannot hold it: expected a dense tensor, found one of layout " +
                 base::quote(level.info->layout));
    }
    std::vector<int> groups;
    tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
      const std::string child = note_path_child(path, key);
      check_key(key, child);
      const auto* node = std::get_if<TensorDict>(&item);
      if (is_stack && node == nullptr) {
        refuse(child,
               "an entry of a stack that is no node cannot be stored: expected a node, "
               "found a tensor or value");
      }
      groups.push_back(add(level, key, item, child, depth));
    });
    note_order(groups, path);
    return level;
  }

 private:
  /// The document is deeper than the tree: an entry of a node is a list in an object in its own.
  static void check_depth(const std::string& path, std::size_t depth, std::size_t value_depth) {
    constexpr std::size_t kMost = codecs::kMaxJsonDepth - 4;
    if (depth + value_depth <= kMost) return;
    throw Error(ErrorCode::invalid_argument,
                "consolidated: key " + base::quote(path) + ": nested too deep: expected at most " +
                    std::to_string(kMost) + " levels, found more; a node may contain itself");
  }

  static void check_key(const std::string& key, const std::string& path) {
    if (!base::is_utf8(key)) {
      refuse(path, "a key that is no text cannot be stored: expected UTF-8, found other bytes");
    }
  }

  /// The group of the document that the entry is in.
  int add(Level& level, const std::string& key, const TensorDict::Item& item,
          const std::string& path, std::size_t depth) {
    if (const auto* leaf = std::get_if<Leaf>(&item)) {
      check_leaf(*leaf, key, path, *level.info);
      level.leaves.push_back(place(*leaf, key));
      return 1;
    }
    if (const auto* node = std::get_if<TensorDict>(&item); node != nullptr && is_jagged(*node)) {
      place_jagged(level, *node, key, path);
      return 1;
    }
    const auto* value = std::get_if<NonTensor>(&item);
    if (value != nullptr) check_depth(path, depth, depth_of(value->value));
    if (value != nullptr && !value->is_stack) {
      level.values.emplace_back(key, value->value);
      return 0;
    }
    if (is_reserved_member(key)) {
      refuse(path,
             "a node of that name cannot be stored: expected a key that tensordict's document does "
             "not use itself, found " +
                 base::quote(key));
    }
    if (value != nullptr) {
      level.nodes.emplace_back(key, *value);
    } else {
      level.nodes.emplace_back(key, this->level(std::get<TensorDict>(item), path, depth + 1));
    }
    return 2;
  }

  static bool is_jagged(const TensorDict& node) {
    return node.kind() == NodeKind::sparse && node.info().layout == kJagged;
  }

  void place_jagged(Level& level, const TensorDict& node, const std::string& key,
                    const std::string& path) {
    check_name(key, path);
    require_sound_sparse(node, "consolidated: key " + base::quote(path));
    const Shape& shape = node.info().dense_shape;
    check_batch(shape, level.info->batch_size, path);
    for (const auto& [part, prefix] : {std::pair("values", kJaggedValues),
                                       {"lengths", kJaggedLengths},
                                       {"offsets", kJaggedOffsets}}) {
      if (!node.contains(part)) continue;
      const Leaf leaf = std::get<Leaf>(node.get(part));
      check_dtype(leaf, path);
      level.leaves.push_back(place(leaf, std::string(prefix) + key));
    }
    level.leaves.back().ragged_dim = std::ranges::find(shape, -1) - shape.begin();
  }

  static void check_dtype(const Leaf& leaf, const std::string& path) {
    if (is_readable(leaf.dtype())) return;
    refuse(path,
           "tensordict cannot read the dtype from such a file: expected one it has a name "
           "for, found " +
               std::string(name(leaf.dtype())));
  }

  static void check_name(const std::string& key, const std::string& path) {
    if (!key.starts_with("<NJT")) return;
    refuse(path,
           "tensordict takes a tensor of that name for a part of a jagged one: expected a key "
           "that does not begin with \"<NJT\", found " +
               base::quote(key));
  }

  static void check_batch(const Shape& shape, const Shape& batch, const std::string& path) {
    if (shape.size() >= batch.size() && std::equal(batch.begin(), batch.end(), shape.begin())) {
      return;
    }
    refuse(path, "the shape does not fit: expected it to start with the batch_size " +
                     base::list_text(batch) + ", found " + base::list_text(shape));
  }

  void check_leaf(const Leaf& leaf, const std::string& key, const std::string& path,
                  const NodeInfo& info) const {
    if (leaf.is_nested()) {
      refuse(path, "a nested tensor cannot be stored: expected a dense one, found one of " +
                       std::to_string(leaf.shape().empty() ? 0 : leaf.shape()[0]) + " components");
    }
    check_dtype(leaf, path);
    check_name(key, path);
    if (leaf.is_unbatched()) {
      if (notes_) return;
      refuse(path,
             "that a tensor is unbatched cannot be stored: expected a plain one, found an "
             "unbatched one");
    }
    check_batch(leaf.shape(), info.batch_size, path);
  }

  Placed place(const Leaf& leaf, const std::string& key) {
    const std::uint64_t align = std::max<std::uint64_t>(kPadding, itemsize(leaf.dtype()));
    const std::size_t next = plan_.tensors.size();
    if (notes_) {
      const SharedBytes bytes = shared_bytes(leaf);
      if (bytes != SharedBytes{}) {
        const auto [found, added] = stored_.try_emplace(bytes, next);
        if (!added && plan_.tensors[found->second].begin % align == 0) {
          return {key, found->second, leaf.dtype(), leaf.shape(), 0};
        }
      }
    }
    Plan::Tensor tensor{leaf, round_up(plan_.data_bytes, align), leaf.nbytes(), 0};
    tensor.stop = tensor.begin + round_up(tensor.size_bytes, kPadding);
    plan_.data_bytes = tensor.stop;
    plan_.tensors.push_back(std::move(tensor));
    return {key, next, leaf.dtype(), leaf.shape(), 0};
  }

  void note_order(const std::vector<int>& groups, const std::string& path) {
    if (!notes_ || std::ranges::is_sorted(groups)) return;
    std::array<std::size_t, 3> next{};
    for (const int group : groups) {
      for (std::size_t later = static_cast<std::size_t>(group) + 1; later < next.size(); ++later) {
        ++next[later];
      }
    }
    std::vector<std::size_t> order;
    for (const int group : groups) order.push_back(next[static_cast<std::size_t>(group)]++);
    extra_.order.emplace(path, std::move(order));
  }

  bool notes_;
  Plan& plan_;
  Extra& extra_;
  std::unordered_map<SharedBytes, std::size_t, SharedBytesHash> stored_;
};

/// Writes the document of placed tensors.
class DocumentWriter {
 public:
  DocumentWriter(const Plan& plan, const PlanOptions& options)
      : plan_(plan), options_(options), json_(codecs::JsonStyle::python) {}

  std::string run(const Level& root, const Extra& extra) {
    json_.begin_object();
    members(root, true);
    if (!extra.empty()) {
      json_.key("size");
      write_extra(extra, json_);
    }
    json_.end_object();
    return json_.take();
  }

 private:
  void members(const Level& level, bool is_root) {
    const NodeInfo& info = *level.info;
    json_.key("cls");
    json_.string(class_of(info, is_root));
    json_.key("non_tensors");
    json_.begin_object();
    const Shape batch = is_batched(info) ? info.batch_size : Shape{};
    for (const auto& [key, value] : level.values) this->value(key, value, batch, info.device);
    json_.end_object();
    json_.key("leaves");
    json_.begin_object();
    for (const Placed& placed : level.leaves) leaf(placed);
    json_.end_object();
    json_.key("cls_metadata");
    if (info.kind == NodeKind::lazy_stack) {
      about_stack(info.stack_dim, info.stack_dim_name);
    } else {
      about_node(info, batch);
    }
    for (const auto& [key, child] : level.nodes) {
      json_.key(key);
      if (const auto* inner = std::get_if<Level>(&child)) {
        json_.begin_object();
        members(*inner, false);
        json_.end_object();
      } else {
        const auto& stack = std::get<NonTensor>(child);
        value_stack(stack.value, stack.stack_dim, batch, info);
      }
    }
  }

  static bool is_batched(const NodeInfo& info) {
    return info.kind == NodeKind::tensordict || info.kind == NodeKind::tensorclass;
  }

  /// tensordict forgets the class of a root.
  std::string_view class_of(const NodeInfo& info, bool is_root) const {
    if (info.kind == NodeKind::lazy_stack) return "LazyStackedTensorDict";
    const bool kept = info.kind == NodeKind::tensorclass && (options_.notes || !is_root);
    return kept ? std::string_view(info.class_name) : "TensorDict";
  }

  void text_or_null(const std::optional<std::string>& text) {
    if (text) {
      json_.string(*text);
    } else {
      json_.null();
    }
  }
  void list(const Shape& lengths) {
    json_.begin_array();
    for (const std::int64_t length : lengths) json_.integer(length);
    json_.end_array();
  }
  void locked() {
    json_.key("is_locked");
    json_.boolean(options_.locked);
  }

  void about_node(const NodeInfo& info, const Shape& batch) {
    json_.begin_object();
    json_.key("device");
    text_or_null(info.device.empty() ? std::nullopt : std::optional(info.device));
    json_.key("names");
    json_.begin_array();
    for (std::size_t i = 0; i < batch.size(); ++i) {
      text_or_null(i < info.names.size() ? info.names[i] : std::nullopt);
    }
    json_.end_array();
    json_.key("batch_size");
    list(batch);
    locked();
    json_.end_object();
  }
  void about_stack(std::int64_t dim, const std::optional<std::string>& name) {
    json_.begin_object();
    json_.key("stack_dim");
    json_.integer(dim);
    json_.key("stack_dim_name");
    text_or_null(name);
    locked();
    json_.end_object();
  }

  void value(const std::string& key, const Value& value, const Shape& batch,
             const std::string& device) {
    json_.key(key);
    json_.begin_array();
    write_json(value, json_);
    list(batch);
    text_or_null(device.empty() ? std::nullopt : std::optional(device));
    json_.end_array();
  }

  /// A NonTensorStack: a node whose entries are values, or stacks of them.
  void value_stack(const Value& stack, std::int64_t dim, const Shape& batch, const NodeInfo& node) {
    const Shape inner = batch.empty() ? Shape{} : Shape(batch.begin() + 1, batch.end());
    const Value::List* stacks = stacked_items(stack);
    json_.begin_object();
    json_.key("cls");
    json_.string("NonTensorStack");
    json_.key("non_tensors");
    json_.begin_object();
    if (stacks == nullptr) {
      const auto* list = stack.get_if<Value::List>();
      for (std::size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
        value(std::to_string(i), list->items[i], inner, node.device);
      }
    }
    json_.end_object();
    json_.key("leaves");
    json_.begin_object();
    json_.end_object();
    json_.key("cls_metadata");
    about_stack(dim, std::nullopt);
    for (std::size_t i = 0; stacks != nullptr && i < stacks->items.size(); ++i) {
      json_.key(std::to_string(i));
      value_stack(stacks->items[i], 0, inner, node);
    }
    json_.end_object();
  }

  void leaf(const Placed& placed) {
    const Plan::Tensor& tensor = plan_.tensors[placed.tensor];
    json_.key(placed.key);
    json_.begin_array();
    json_.string("torch." + std::string(name(placed.dtype)));
    list(placed.shape);
    json_.integer(static_cast<std::int64_t>(tensor.begin));
    json_.integer(static_cast<std::int64_t>(tensor.stop));
    json_.integer(static_cast<std::int64_t>(tensor.stop - tensor.begin - tensor.size_bytes));
    if (placed.ragged_dim > 0) json_.integer(placed.ragged_dim);
    json_.end_array();
  }

  const Plan& plan_;
  const PlanOptions& options_;
  codecs::JsonWriter json_;
};

/// What tensordict's own file would lose without a word.
void refuse_what_notes_hold(const NodeInfo& root) {
  if (root.schema)
    refuse("", "the schema of a data set cannot be stored: expected none, found one");
  if (!root.metadata.empty()) {
    refuse("", "metadata of a safetensors file cannot be stored: expected none, found some");
  }
}

}  // namespace

Plan make_plan(const TensorDict& tree, const PlanOptions& options) {
  Plan plan;
  Extra extra;
  const Level root = Placer(options.notes, plan, extra).level(tree, "", 0);
  if (options.notes) {
    extra.notes = collect_notes(tree);
    extra.notes.aliases.clear();  // tied tensors have one place in the file
    std::erase_if(extra.notes.nodes,
                  [](const auto& entry) { return entry.second.layout == kJagged; });
    extra.notes.schema = tree.info().schema;
    extra.notes.metadata = tree.info().metadata;
  } else {
    refuse_what_notes_hold(tree.info());
  }
  if (options.checksums) {
    std::uint64_t blocks = 0;
    for (const auto& tensor : plan.tensors) blocks += num_checksum_blocks(tensor.size_bytes);
    extra.checksums = blank_checksum_text(blocks);
  }
  plan.document = DocumentWriter(plan, options).run(root, extra);
  if (plan.document.size() > kMaxDocumentBytes) {
    refuse("", "the document is too long: expected at most " + std::to_string(kMaxDocumentBytes) +
                   " bytes, found " + std::to_string(plan.document.size()));
  }
  return plan;
}

}  // namespace tenfold::detail::formats::consolidated
