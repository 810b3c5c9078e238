#include "formats/dcp/tree.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/assembled_source.hpp"
#include "core/tree/node.hpp"
#include "formats/shared/object_file.hpp"

namespace tenfold::detail::formats::dcp {
namespace {

/// Maximum number of missing items in all lists together. Without a limit, one path with a large
/// index would create a huge list.
constexpr std::uint64_t kMaxHoles = 65'536;

Error corrupt(const std::string& where, const std::string& key) {
  return base::corrupt(where).part("key ", base::quote(key));
}

/// A location in the tree: an entry, or a container.
struct Branch {
  std::string key;
  std::string where = {};  ///< for messages
  const Entry* entry = nullptr;
  bool is_list = false;      ///< for containers
  bool has_tensors = false;  ///< here or below
  std::vector<std::uint32_t> children = {};
};

/// All branches, and the files that contain their tensors and objects. Shared by the lazy entries
/// of the tree.
class Plan : public std::enable_shared_from_this<Plan> {
 public:
  Plan(Metadata metadata, std::shared_ptr<Files> files, std::string where)
      : metadata_(std::move(metadata)), files_(std::move(files)) {
    source_ = std::make_shared<Source>(files_);
    branches_.push_back({"", std::move(where)});
    branches_[0].has_tensors = true;  // the root is a node even without tensors
  }

  TensorDict tree() {
    for (const Entry& entry : metadata_.entries) place(entry);
    for (Branch& branch : branches_) {
      if (branch.is_list) sort(branch);
    }
    return node_of(0);
  }

  TensorDict tree(const Manifest& manifest) {
    std::unordered_map<std::string_view, const Entry*> entries;
    for (const Entry& entry : metadata_.entries) entries.emplace(entry.name, &entry);
    return manifest_tree(manifest, branches_[0].where, [&](std::size_t number) {
      const ManifestTensor& tensor = manifest.tensors[number];
      const auto found = entries.find(tensor.name);
      const auto* stored =
          found == entries.end() ? nullptr : std::get_if<TensorEntry>(&found->second->what);
      if (stored == nullptr || stored->dtype != tensor.dtype || stored->shape != tensor.shape) {
        throw corrupt(branches_[0].where, tensor.name)
            .expected(to_string(tensor.dtype), " of shape ", base::list_text(tensor.shape),
                      ", as in ", base::quote(kManifestName))
            .found("another or none in \".metadata\"");
      }
      return leaf_of(*found->second);
    });
  }

  /// Reads a branch without tensors: an object, or a container of objects. Returns a container as
  /// one JSON value if all its objects are JSON, else as a node.
  TensorDict::Item read(std::uint32_t id);

 private:
  /// Inserts the entry at its path.
  void place(const Entry& entry) {
    const bool is_tensor = std::holds_alternative<TensorEntry>(entry.what);
    std::uint32_t at = 0;
    for (const Key& key : entry.path) {
      Branch& parent = branches_[at];
      const bool is_first = parent.children.empty();
      if (is_first) parent.is_list = key.is_index && at != 0;
      if (parent.entry != nullptr) {
        throw corrupt(branches_[0].where, entry.name)
            .problem("its path leads through another entry")
            .expected("a dict or list")
            .found(base::quote(parent.entry->name));
      }
      if (key.is_index != parent.is_list) {
        throw corrupt(branches_[0].where, entry.name)
            .problem("its path contradicts that of another entry")
            .expected(parent.is_list ? "an index of a list" : "a key of a dict")
            .found(base::quote(key.text));
      }
      parent.has_tensors |= is_tensor;
      const auto [found, is_new] =
          positions_.try_emplace({at, key.text}, static_cast<std::uint32_t>(branches_.size()));
      if (is_new) {
        parent.children.push_back(found->second);
        branches_.push_back({key.text, parent.where + "/" + key.text});
      }
      at = found->second;
    }
    Branch& branch = branches_[at];
    if (branch.entry != nullptr || !branch.children.empty()) {
      throw corrupt(branches_[0].where, entry.name)
          .problem("its path is that of another entry, dict or list")
          .expected("different paths")
          .found("the same one");
    }
    branch.entry = &entry;
    branch.has_tensors = is_tensor;
  }

  std::uint64_t index_of(std::uint32_t id) const {
    const std::string& text = branches_[id].key;
    std::uint64_t index = 0;
    std::from_chars(text.data(), text.data() + text.size(), index);
    return index;
  }

  void sort(Branch& list) {
    std::ranges::sort(list.children, {}, [&](std::uint32_t id) { return index_of(id); });
    const std::uint64_t length = index_of(list.children.back()) + 1;
    const std::uint64_t holes = length - list.children.size();
    if (holes <= kMaxHoles - num_holes_) {
      num_holes_ += holes;
      return;
    }
    throw base::corrupt(list.where)
        .problem("too many missing items")
        .expected("at most ", kMaxHoles, " in all lists together")
        .found(holes + num_holes_);
  }

  NodeInfo info_of(const Branch& branch) const {
    NodeInfo info;
    info.kind = branch.is_list ? NodeKind::list : NodeKind::dict;
    return info;
  }

  /// Calls `use` with the key of each child and its index in `branches_`, which is nullopt for a
  /// missing item of a list.
  template <class Use>
  void for_each_child(const Branch& branch, const Use& use) const {
    std::uint64_t next = 0;
    for (const std::uint32_t child : branch.children) {
      if (branch.is_list) {
        for (; next < index_of(child); ++next) use(std::to_string(next), std::nullopt);
        ++next;
      }
      use(branches_[child].key, std::optional(child));
    }
  }

  TensorDict node_of(std::uint32_t id);
  Node::Slot slot_of(std::uint32_t id);

  Leaf leaf_of(const Entry& entry) {
    const auto& tensor = std::get<TensorEntry>(entry.what);
    std::vector<TensorPiece> pieces;
    for (const Chunk& chunk : tensor.chunks) {
      pieces.push_back(
          {chunk.offsets, Source::add(source_, tensor.dtype, chunk.sizes, chunk.item, entry.name)});
    }
    return AssembledSource::assemble(tensor.dtype, tensor.shape, std::move(pieces),
                                     {branches_[0].where, "key " + base::quote(entry.name)});
  }

  Metadata metadata_;
  std::shared_ptr<Files> files_;
  std::shared_ptr<Source> source_;
  std::vector<Branch> branches_;
  std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> positions_;
  std::uint64_t num_holes_ = 0;
};

/// A subtree without tensors, whose objects are read at the first access.
class ObjectsItem final : public LazyItem {
 public:
  ObjectsItem(std::shared_ptr<Plan> plan, std::uint32_t branch)
      : plan_(std::move(plan)), branch_(branch) {}
  TensorDict::Item load() override { return plan_->read(branch_); }

 private:
  std::shared_ptr<Plan> plan_;
  std::uint32_t branch_;
};

Node::Slot Plan::slot_of(std::uint32_t id) {
  const Branch& branch = branches_[id];
  if (!branch.has_tensors) return std::make_shared<ObjectsItem>(shared_from_this(), id);
  if (branch.entry != nullptr) return leaf_of(*branch.entry);
  return node_of(id);
}

TensorDict Plan::node_of(std::uint32_t id) {
  const Branch& branch = branches_[id];
  auto node = std::make_shared<Node>();
  node->info = info_of(branch);
  node->where = branch.where;
  for_each_child(branch, [&](std::string key, std::optional<std::uint32_t> child) {
    node->entries.push_back({std::move(key), child ? slot_of(*child) : Node::Slot(NonTensor{})});
  });
  return tensordict_of(std::move(node));
}

TensorDict::Item Plan::read(std::uint32_t id) {
  const Branch& branch = branches_[id];
  if (branch.entry != nullptr) {
    const auto& item = std::get<Item>(branch.entry->what);
    try {
      const FilePart place = files_->place(item);
      return read_object_item(place.file, place.begin, place.size_bytes);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw;
      throw Error(error).within("key ", base::quote(branch.entry->name));
    }
  }
  auto node = std::make_shared<Node>();
  node->info = info_of(branch);
  node->where = branch.where;
  bool is_json = true;
  for_each_child(branch, [&](std::string key, std::optional<std::uint32_t> child) {
    TensorDict::Item item = child ? read(*child) : TensorDict::Item(NonTensor{});
    is_json &= std::holds_alternative<NonTensor>(item);
    std::visit(
        [&](auto& held) { node->entries.push_back({std::move(key), Node::Slot(std::move(held))}); },
        item);
  });
  if (!is_json) return tensordict_of(std::move(node));
  Value::Object object;
  Value::List list;
  for (Node::Entry& entry : node->entries) {
    Value value = std::move(std::get<NonTensor>(entry.slot).value);
    if (branch.is_list) {
      list.items.push_back(std::move(value));
    } else {
      object.members.emplace_back(std::move(entry.key), std::move(value));
    }
  }
  return NonTensor{branch.is_list ? Value(std::move(list)) : Value(std::move(object))};
}

}  // namespace

TensorDict build_tree(Metadata metadata, const std::shared_ptr<Files>& files,
                      const std::string& where) {
  return std::make_shared<Plan>(std::move(metadata), files, where)->tree();
}

TensorDict build_tree(Metadata metadata, const Manifest& manifest,
                      const std::shared_ptr<Files>& files, const std::string& where) {
  return std::make_shared<Plan>(std::move(metadata), files, where)->tree(manifest);
}

}  // namespace tenfold::detail::formats::dcp
