#include "tree_out.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "call.hpp"
#include "core/tree/node.hpp"
#include "core/tree/sparse.hpp"

namespace tenfold::python {
namespace {

/// An entry whose tensor is already mapped, so that no I/O is necessary while the GIL is held. If
/// the node stores the entry as a Leaf, `held` points to that Leaf, and it is not copied.
struct Mapped {
  std::string_view key;
  std::optional<TensorDict::Item> item;  // empty if `held` is set
  const Leaf* held = nullptr;
  std::optional<Tensor> tensor;  // for a leaf that was on disk

  const Leaf* leaf() const { return held != nullptr ? held : std::get_if<Leaf>(&*item); }
  const TensorDict* child() const {
    return held != nullptr ? nullptr : std::get_if<TensorDict>(&*item);
  }
  const NonTensor* value() const {
    return held != nullptr ? nullptr : std::get_if<NonTensor>(&*item);
  }
};

std::vector<Mapped> map_entries(const TensorDict& tree, std::size_t begin, std::size_t end) {
  Node& node = *node_of(tree);
  std::vector<Mapped> entries(end - begin);
  for (std::size_t i = begin; i < end; ++i) {
    Mapped& entry = entries[i - begin];
    entry.key = node.entries[i].key;
    entry.held = node.leaf_at(i);
    if (entry.held == nullptr) {
      entry.item = node.item(i);
    } else if (!entry.held->in_memory()) {
      entry.tensor = entry.held->tensor();
    }
  }
  return entries;
}

/// Calls `use` for each entry, in the order of the node. Maps tensors without the GIL, in groups
/// that are small enough to be still in the CPU cache when the Python objects are created.
template <class Use>
void for_each_mapped(const TensorDict& tree, const Use& use) {
  constexpr std::size_t kBlockTensors = 256;
  const GarbagePause pause;
  const std::size_t count = tree.size();
  for (std::size_t begin = 0; begin < count; begin += kBlockTensors) {
    const std::size_t end = std::min(begin + kBlockTensors, count);
    const auto entries = without_gil([&] { return map_entries(tree, begin, end); });
    for (const Mapped& entry : entries) use(entry);
  }
}

nb::object mark_of(const Mapped& entry) {
  if (const Leaf* leaf = entry.leaf()) {
    if (leaf->is_unbatched()) return nb::str("unbatched");
  } else if (const NonTensor* value = entry.value()) {
    if (value->is_stack) return nb::int_(value->stack_dim);
  }
  return nb::none();
}

nb::object object_of(const TensorDict& node, const Mapped& entry, ArrayMaker& maker) {
  if (const Leaf* leaf = entry.leaf()) {
    const Tensor& tensor = entry.tensor ? *entry.tensor : *leaf->tensor_in_memory();
    return maker.make(*leaf, tensor, {node.where(), entry.key});
  }
  if (const NonTensor* value = entry.value()) return to_python(value->value, node, entry.key);
  return nb::cast(NodeHandle{*entry.child()});
}

/// The dict key that `key` of `node` represents. Error messages name `key`.
nb::object key_of(std::string_view key, const TensorDict& node) {
  try {
    return key_from(key, node.info().int_keys, node.info().typed_keys);
  } catch (const Error& error) {
    throw Error(error).within("key ", base::quote(key)).path(node.where());
  }
}

/// Rebuilds containers from nodes.
class Containers {
 public:
  Containers(ArrayMaker& maker, nb::object wrap) : maker_(maker), wrap_(std::move(wrap)) {}

  nb::object of(const TensorDict& node) {
    switch (node.kind()) {
      case NodeKind::dict:
      case NodeKind::ordered_dict:
        return dict(node);
      case NodeKind::list:
        return list(node);
      case NodeKind::tuple:
        return nb::tuple(list(node));
      case NodeKind::sparse:
        return sparse(node);
      case NodeKind::opaque:
        return opaque(node);
      case NodeKind::tensordict:
      case NodeKind::tensorclass:
      case NodeKind::lazy_stack:
        break;
    }
    return wrap_(NodeHandle{node}, nb::tuple(keys_));
  }

  /// The value of a bare root.
  nb::object bare(const TensorDict& root) {
    nb::object made;
    for_each_mapped(root, [&](const Mapped& mapped) { made = entry(root, mapped); });
    return made;
  }

 private:
  nb::object entry(const TensorDict& node, const Mapped& mapped) {
    const TensorDict* child = mapped.child();
    if (child == nullptr) return object_of(node, mapped, maker_);
    keys_.append(text(mapped.key));
    nb::object made = of(*child);
    keys_.attr("pop")();
    return made;
  }

  nb::object dict(const TensorDict& node) {
    nb::object made = node.kind() == NodeKind::ordered_dict
                          ? nb::module_::import_("collections").attr("OrderedDict")()
                          : nb::object(nb::dict());
    const NodeInfo& info = node.info();
    for_each_mapped(
        node, [&](const Mapped& mapped) { made[key_of(mapped.key, node)] = entry(node, mapped); });
    // A file of another tool may have module versions for a plain dict, which has no attributes.
    const auto& versions = info.module_versions;
    if (versions && info.kind == NodeKind::ordered_dict) {
      made.attr("_metadata") =
          nb::module_::import_("collections").attr("OrderedDict")(to_python(*versions));
    }
    return made;
  }

  /// Checks the indices, then builds the sparse or jagged tensor from its component tensors by
  /// `sparse` of tenfold/_interop/objects.py.
  nb::object sparse(const TensorDict& node) {
    without_gil([&] { check_sparse_indices(node, place_of(node)); });
    const NodeInfo& info = node.info();
    return special("sparse")(text(info.layout), tuple_of(info.dense_shape), info.is_coalesced,
                             members(node));
  }

  nb::object opaque(const TensorDict& node) {
    return special("opaque")(text(node.info().class_name), members(node));
  }

  static nb::object special(const char* function) {
    return nb::module_::import_("tenfold._interop.objects").attr(function);
  }

  base::Where place_of(const TensorDict& node) const {
    KeyPath path;
    for (const nb::handle key : keys_) path.push_back(utf8(key));
    return {node.where(), path.empty() ? "" : "key " + base::quote(dotted(path))};
  }

  nb::dict members(const TensorDict& node) {
    nb::dict made;
    for_each_mapped(node,
                    [&](const Mapped& mapped) { made[text(mapped.key)] = entry(node, mapped); });
    return made;
  }

  nb::list list(const TensorDict& node) {
    nb::list made;
    for_each_mapped(node, [&](const Mapped& mapped) { made.append(entry(node, mapped)); });
    return made;
  }

  ArrayMaker& maker_;
  nb::object wrap_;
  nb::list keys_;
};

}  // namespace

nb::tuple get_entry(const NodeHandle& self, nb::str key, const std::string& mode, Tied& tied) {
  const std::string name = utf8(key);
  Mapped entry;
  entry.key = name;
  without_gil([&] {
    entry.item = item_at_key(self.node, name);
    if (const auto* leaf = std::get_if<Leaf>(&*entry.item)) entry.tensor = leaf->tensor();
  });
  ArrayMaker maker(mode_from(mode), tied, nb::none());
  return nb::make_tuple(object_of(self.node, entry, maker), mark_of(entry));
}

nb::tuple fill(const NodeHandle& self, const std::string& mode, Tied& tied) {
  ArrayMaker maker(mode_from(mode), tied, nb::none());
  nb::dict objects;
  nb::dict marks;
  for_each_mapped(self.node, [&](const Mapped& entry) {
    const TensorDict* child = entry.child();
    // get() throws an error with the reason.
    if (child != nullptr && child->info().is_refused()) self.node.get(entry.key);
    const nb::str key = text(entry.key);
    objects[key] = object_of(self.node, entry, maker);
    const nb::object mark = mark_of(entry);
    if (!mark.is_none()) marks[key] = mark;
  });
  return nb::make_tuple(objects, marks);
}

nb::object to_containers(const NodeHandle& self, const std::string& mode, Tied& tied,
                         nb::object place, nb::object wrap) {
  ArrayMaker maker(mode_from(mode), tied, std::move(place));
  Containers containers(maker, std::move(wrap));
  return is_bare(self.node) ? containers.bare(self.node) : containers.of(self.node);
}

}  // namespace tenfold::python
