#include "tree_out.hpp"

#include <optional>
#include <utility>
#include <vector>

#include "call.hpp"

namespace tenfold::python {
namespace {

/// An entry with its tensor mapped already, so that the GIL is not held during I/O.
struct Mapped {
  std::string key;
  TensorDict::Item item;
  std::optional<Tensor> tensor;
};

std::vector<Mapped> map_entries(const TensorDict& node) {
  std::vector<Mapped> entries;
  entries.reserve(node.size());
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    entries.push_back(
        {key, item, leaf == nullptr ? std::nullopt : std::optional<Tensor>(leaf->tensor())});
  });
  return entries;
}

std::string name_of(const TensorDict& node, const std::string& key) {
  return node.where().empty() ? key : node.where() + ": " + key;
}

nb::object mark_of(const TensorDict::Item& item) {
  if (const auto* leaf = std::get_if<Leaf>(&item)) {
    if (leaf->is_unbatched()) return nb::str("unbatched");
  } else if (const auto* value = std::get_if<NonTensor>(&item)) {
    if (value->is_stack) return nb::int_(value->stack_dim);
  }
  return nb::none();
}

nb::object object_of(const TensorDict& node, const Mapped& entry, ArrayMaker& maker) {
  if (const auto* leaf = std::get_if<Leaf>(&entry.item)) {
    return maker.make(*leaf, *entry.tensor, name_of(node, entry.key));
  }
  if (const auto* value = std::get_if<NonTensor>(&entry.item)) return to_python(value->value);
  return nb::cast(NodeHandle{std::get<TensorDict>(entry.item)});
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
      case NodeKind::tensordict:
      case NodeKind::tensorclass:
      case NodeKind::lazy_stack:
        break;
    }
    return wrap_(NodeHandle{node}, nb::tuple(keys_));
  }

 private:
  nb::object entry(const TensorDict& node, const Mapped& mapped) {
    const auto* child = std::get_if<TensorDict>(&mapped.item);
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
    const bool int_keys = node.info().int_keys;
    for (const Mapped& mapped : without_gil([&] { return map_entries(node); })) {
      nb::object key = text(mapped.key);
      if (int_keys) key = nb::int_(key);
      made[key] = entry(node, mapped);
    }
    return made;
  }

  nb::list list(const TensorDict& node) {
    nb::list made;
    for (const Mapped& mapped : without_gil([&] { return map_entries(node); })) {
      made.append(entry(node, mapped));
    }
    return made;
  }

  ArrayMaker& maker_;
  nb::object wrap_;
  nb::list keys_;
};

}  // namespace

nb::tuple get_entry(const NodeHandle& self, nb::str key, const std::string& mode, Tied& tied) {
  const Mapped entry = without_gil([&, name = utf8(key)] {
    TensorDict::Item item = self.node.get(name);
    std::optional<Tensor> tensor;
    if (const auto* leaf = std::get_if<Leaf>(&item)) tensor = leaf->tensor();
    return Mapped{name, std::move(item), std::move(tensor)};
  });
  ArrayMaker maker(mode_from(mode), tied, nb::none());
  return nb::make_tuple(object_of(self.node, entry, maker), mark_of(entry.item));
}

nb::tuple fill(const NodeHandle& self, const std::string& mode, Tied& tied) {
  ArrayMaker maker(mode_from(mode), tied, nb::none());
  nb::dict objects;
  nb::dict marks;
  for (const Mapped& entry : without_gil([&] { return map_entries(self.node); })) {
    const nb::str key = text(entry.key);
    objects[key] = object_of(self.node, entry, maker);
    const nb::object mark = mark_of(entry.item);
    if (!mark.is_none()) marks[key] = mark;
  }
  return nb::make_tuple(objects, marks);
}

nb::object to_containers(const NodeHandle& self, const std::string& mode, Tied& tied,
                         nb::object place, nb::object wrap) {
  ArrayMaker maker(mode_from(mode), tied, std::move(place));
  return Containers(maker, std::move(wrap)).of(self.node);
}

}  // namespace tenfold::python
