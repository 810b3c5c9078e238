#include "formats/safetensors/tree.hpp"

#include <charconv>
#include <optional>
#include <utility>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "core/tensor/torch_names.hpp"
#include "core/tree/batch.hpp"
#include "core/tree/node.hpp"
#include "formats/safetensors/stack.hpp"
#include "formats/safetensors/structure.hpp"

namespace tenfold::detail::formats::safetensors {

bool is_reserved_member(std::string_view key) noexcept {
  return key == kStructureMember || key == kNotesMember || key == kChecksumsMember ||
         key == kOrderMember || key == kFormatMember || key == kTotalSizeMember;
}

std::uint32_t TensorEntries::find(std::string_view wanted) const {
  return index.find(wanted, [this](std::uint32_t row) { return name(row); });
}

Leaf TensorEntries::leaf(std::size_t row) const {
  const File& file = files[rows[row].file];
  const std::uint32_t entry = rows[row].entry;
  const auto shape = file.header->shape(entry);
  return Leaf(file.header->entries[entry].dtype, Shape(shape.begin(), shape.end()), file.source,
              entry);
}

namespace {

/// A small file must not become a large tree: a stack of n entries is n nodes here.
constexpr std::uint64_t kMaxStackItems = std::uint64_t{1} << 20;

std::vector<std::string> keys_of(const Node& node) {
  std::vector<std::string> keys;
  keys.reserve(node.entries.size());
  for (const Node::Entry& entry : node.entries) keys.push_back(entry.key);
  return keys;
}

void apply_notes_to(const Notes& notes, std::string_view path, Node& node) {
  if (!notes.nodes.empty()) apply_node_note(notes, path, keys_of(node), node.info);
}

/// "2 0 1" as a permutation of [0, count), or nothing.
std::optional<std::vector<std::size_t>> parse_order(std::string_view text, std::size_t count) {
  std::vector<std::size_t> order;
  std::vector<bool> seen(count);
  order.reserve(count);
  while (!text.empty()) {
    std::size_t position = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), position);
    if (error != std::errc() || position >= count || seen[position]) return std::nullopt;
    seen[position] = true;
    order.push_back(position);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.empty() && text.front() != ' ') return std::nullopt;
    if (!text.empty()) text.remove_prefix(1);
  }
  if (order.size() != count) return std::nullopt;
  return order;
}

/// Without a structure: a dict with the names as they stand.
TensorDict build_flat(TensorEntries tensors, const Metadata& metadata, const Notes& notes,
                      const std::string& where) {
  auto node = std::make_shared<Node>();
  node->where = where;
  node->entries.reserve(tensors.rows.size());
  for (std::size_t row = 0; row < tensors.rows.size(); ++row) {
    node->entries.push_back({std::string(tensors.name(row)), tensors.leaf(row)});
  }
  // A name that was dropped because its tensor is stored under another one (safetensors'
  // save_model): the tensor has both names again.
  for (const auto& [dropped, kept] : metadata) {
    if (is_reserved_member(dropped)) continue;
    const std::uint32_t row = tensors.find(kept);
    if (row == KeyIndex::kNone || tensors.find(dropped) != KeyIndex::kNone) continue;
    node->entries.push_back({dropped, tensors.leaf(row)});
  }
  const bool plain = node->entries.size() == tensors.rows.size();
  const auto order_text = metadata.find(kOrderMember);
  if (order_text != metadata.end()) {
    const auto order = parse_order(order_text->second, node->entries.size());
    if (order) {
      std::vector<Node::Entry> ordered;
      ordered.reserve(order->size());
      for (const std::size_t position : *order) {
        ordered.push_back(std::move(node->entries[position]));
      }
      node->entries = std::move(ordered);
    } else {
      warn(where + ": __metadata__ \"tenfold_order\": ignored: expected each of " +
           std::to_string(node->entries.size()) +
           " positions once, found others; another tool may have changed the file");
    }
  } else if (plain) {
    node->index = std::move(tensors.index);
  }
  apply_notes_to(notes, "", *node);
  if (node->info.kind == NodeKind::tensordict) node->info.kind = NodeKind::dict;
  return TensorDict(std::move(node));
}

/// Builds nodes as a structure document says.
class TreeBuilder {
 public:
  TreeBuilder(const TensorEntries& tensors, const Notes& notes, const std::string& file,
              const std::string& where)
      : tensors_(tensors), notes_(notes), file_(file), where_(where), used_(tensors.rows.size()) {}

  TensorDict root(StructureLevel& level) {
    TensorDict tree = node(level, "", {});
    add_unused(*tree.node());
    return tree;
  }

 private:
  TensorDict node(StructureLevel& level, const std::string& path, const FixedDims& fixed) {
    if (level.stack_dim) {
      for (const auto& [dim, index] : fixed) {
        // What is taken out of a stack along its own dimension is one of its entries.
        if (dim == *level.stack_dim) return dense(level, path, fixed);
      }
      return stack(level, path, fixed);
    }
    return dense(level, path, fixed);
  }

  TensorDict stack(StructureLevel& level, const std::string& path, const FixedDims& fixed) {
    const auto dim = static_cast<std::size_t>(*level.stack_dim);
    auto result = new_node(path);
    result->info.kind = NodeKind::lazy_stack;
    result->info.stack_dim = *level.stack_dim;
    for (const auto& item : fixed) {
      if (item.first < *level.stack_dim) --result->info.stack_dim;
    }
    if (!level.names.empty()) result->info.stack_dim_name = level.names[dim];
    const auto count = static_cast<std::uint64_t>(level.batch_size[dim]);
    if (count > kMaxStackItems - num_stack_items_) too_many(path);
    num_stack_items_ += count;
    for (std::uint64_t i = 0; i < count; ++i) {
      FixedDims inner = fixed;
      auto at = inner.begin();
      while (at != inner.end() && at->first < *level.stack_dim) ++at;
      inner.insert(at, {*level.stack_dim, static_cast<std::int64_t>(i)});
      const std::string key = std::to_string(i);
      result->entries.push_back({key, dense(level, note_path_child(path, key), inner)});
    }
    return TensorDict(std::move(result));
  }

  TensorDict dense(StructureLevel& level, const std::string& path, const FixedDims& fixed) {
    auto result = new_node(path);
    set_info(level, path, fixed, result->info);
    result->entries.reserve(level.entries.size());
    for (StructureLevel::Entry& entry : level.entries) {
      if (!fixed.empty()) {
        if (num_stack_items_ == kMaxStackItems) too_many(path);
        ++num_stack_items_;
      }
      const std::string child = note_path_child(path, entry.key);
      result->entries.push_back({entry.key, slot(level, entry, child, fixed)});
      const auto position = static_cast<std::uint32_t>(result->entries.size() - 1);
      const auto key_at = [&](std::uint32_t i) -> std::string_view {
        return result->entries[i].key;
      };
      if (result->index.insert(entry.key, position, key_at) != KeyIndex::kNone) {
        fail(child, "the key is there twice: expected it once, found two");
      }
    }
    if (level.is_lazy_stack) check_entries(*result, path);
    apply_notes_to(notes_, path, *result);
    return TensorDict(std::move(result));
  }

  void check_entries(Node& stack, const std::string& path) const {
    for (std::size_t i = 0; i < stack.entries.size(); ++i) {
      const std::string& key = stack.entries[i].key;
      const auto fault = stack_dim_fault(stack.info.stack_dim, key, stack.item(i));
      if (fault) fail(path, "\"stack_dim\": " + *fault);
    }
  }

  void set_info(const StructureLevel& level, const std::string& path, const FixedDims& fixed,
                NodeInfo& info) const {
    info.batch_size = level.batch_size;
    info.names = level.names;
    info.device = level.device;
    if (!info.device.empty() && !is_torch_device(info.device)) {
      fail(path,
           "\"device\": expected a type and an index of at most 127, as in \"cuda:0\", found " +
               base::quote(info.device));
    }
    for (auto item = fixed.rbegin(); item != fixed.rend(); ++item) {
      const auto dim = static_cast<std::size_t>(item->first);
      if (dim >= info.batch_size.size()) continue;
      if (info.batch_size[dim] <= item->second) {
        fail(path, "batch_size does not fit the stack: expected more than " +
                       std::to_string(item->second) + " in dimension " + std::to_string(dim) +
                       ", found " + std::to_string(info.batch_size[dim]));
      }
      info.batch_size.erase(info.batch_size.begin() + item->first);
      if (!info.names.empty()) info.names.erase(info.names.begin() + item->first);
    }
    // All None is what no names are.
    bool named = false;
    for (const auto& name : info.names) named = named || name.has_value();
    if (!named) info.names.clear();
    if (level.is_lazy_stack) {
      info = NodeInfo{};
      info.kind = NodeKind::lazy_stack;
      info.stack_dim = level.lazy_stack_dim;
      info.stack_dim_name = level.lazy_stack_name;
    } else if (!level.class_name.empty()) {  // of a stack: of each of its entries
      info.kind = NodeKind::tensorclass;
      info.class_name = level.class_name;
    }
  }

  Node::Slot slot(const StructureLevel& level, StructureLevel::Entry& entry,
                  const std::string& path, const FixedDims& fixed) {
    if (const auto* name = std::get_if<std::string>(&entry.what)) {
      return leaf(level, entry, *name, path, fixed);
    }
    if (const auto* value = std::get_if<NonTensor>(&entry.what)) {
      NonTensor copy = *value;
      apply_value_note(notes_, path, copy.value);
      return copy;
    }
    StructureLevel& inner = *std::get<std::unique_ptr<StructureLevel>>(entry.what);
    TensorDict child = node(inner, path, fixed);
    if (level.is_lazy_stack && child.kind() != NodeKind::tensordict &&
        child.kind() != NodeKind::tensorclass && child.kind() != NodeKind::lazy_stack) {
      fail(path, "an entry of a lazy stack has the wrong kind: expected \"tensordict\", found " +
                     base::quote(tenfold::name(child.kind())));
    }
    return child;
  }

  Leaf leaf(const StructureLevel& level, const StructureLevel::Entry& entry,
            const std::string& name, const std::string& path, const FixedDims& fixed) {
    const std::uint32_t row = tensors_.find(name);
    if (row == KeyIndex::kNone) {
      fail(path, "no such tensor: expected one of the file's, found " + base::quote(name));
    }
    used_[row] = true;
    Leaf leaf = tensors_.leaf(row);
    if (entry.unbatched) {
      leaf.mark_unbatched();
      return leaf;
    }
    const Shape& shape = leaf.shape();
    const bool fits = shape.size() >= level.batch_size.size() &&
                      std::equal(level.batch_size.begin(), level.batch_size.end(), shape.begin());
    if (!fits) {
      fail(path, "the shape of tensor " + base::quote(name) +
                     " does not fit: expected it to start with the batch_size " +
                     base::list_text(level.batch_size) + ", found " + base::list_text(shape));
    }
    if (fixed.empty()) return leaf;
    for (const auto& [dim, index] : fixed) {
      if (static_cast<std::size_t>(dim) >= shape.size() ||
          shape[static_cast<std::size_t>(dim)] <= index) {
        fail(path, "the shape of tensor " + base::quote(name) +
                       " does not fit the stack: expected more than " + std::to_string(index) +
                       " in dimension " + std::to_string(dim) + ", found " +
                       base::list_text(shape));
      }
    }
    return slice_leaf(leaf, fixed);
  }

  /// Tensors that another tool added to the file, but not to the structure.
  void add_unused(Node& node) {
    for (std::size_t row = 0; row < used_.size(); ++row) {
      if (used_[row]) continue;
      const std::string name(tensors_.name(row));
      if (node.find(name) != Node::npos) {
        throw Error(ErrorCode::corrupt,
                    file_ + ": tensor " + base::quote(name) +
                        ": not in the structure, and its name is taken: expected another name, "
                        "found a key of the root");
      }
      warn(file_ + ": tensor " + base::quote(name) +
           ": not in __metadata__ \"tensordict\": added at the root under its name; another tool "
           "may have changed the file");
      node.entries.push_back({name, tensors_.leaf(row)});
      node.index.clear();
    }
  }

  std::shared_ptr<Node> new_node(const std::string& path) const {
    auto node = std::make_shared<Node>();
    node->where = path.empty() ? file_ : file_ + "/" + path;
    return node;
  }

  [[noreturn]] void fail(const std::string& path, const std::string& what) const {
    throw Error(ErrorCode::corrupt, where_ + ": node " + base::quote(path) + ": " + what);
  }
  [[noreturn]] void too_many(const std::string& path) const {
    throw Error(ErrorCode::unsupported, where_ + ": node " + base::quote(path) +
                                            ": the lazy stacks are too large: expected at most " +
                                            std::to_string(kMaxStackItems) +
                                            " entries in all, found more");
  }

  const TensorEntries& tensors_;
  const Notes& notes_;
  const std::string& file_;
  const std::string& where_;
  std::vector<bool> used_;
  std::uint64_t num_stack_items_ = 0;
};

}  // namespace

TensorDict build_tree(TensorEntries tensors, const Metadata& metadata, const std::string& where) {
  Notes notes;
  if (const auto text = metadata.find(kNotesMember); text != metadata.end()) {
    notes = Notes::from_json(text->second, where + ": __metadata__ \"tenfold\"");
  }
  const auto structure = metadata.find(kStructureMember);
  TensorDict tree;
  if (structure == metadata.end()) {
    tree = build_flat(std::move(tensors), metadata, notes, where);
  } else {
    const std::string structure_where = where + ": __metadata__ \"tensordict\"";
    const auto level = parse_structure(structure->second, structure_where);
    tree = TreeBuilder(tensors, notes, where, structure_where).root(*level);
  }
  tree.info().schema = notes.schema;
  for (const auto& [key, text] : metadata) {
    const bool is_tie = structure == metadata.end() && tree.contains(key);
    if (!is_reserved_member(key) && !is_tie) tree.info().metadata.emplace(key, text);
  }
  return tree;
}

}  // namespace tenfold::detail::formats::safetensors
