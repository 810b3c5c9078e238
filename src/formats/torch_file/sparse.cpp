#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

#include "base/text.hpp"
#include "core/tensor/special.hpp"
#include "core/tree/sparse.hpp"
#include "formats/torch_file/builder.hpp"
#include "formats/torch_file/node.hpp"
#include "formats/torch_file/pickle.hpp"
#include "formats/torch_file/value.hpp"

// Tensors of a pickle that are made of several: sparse and jagged ones; and those that are made of
// none, on the meta device.

namespace tenfold::detail::formats::torch_file {

using codecs::PickleKind;
using codecs::PickleNode;

Node::Slot TreeBuilder::sparse(const Pickle::Call& call) {
  pickle_.require_arguments(call, 2, 2);
  const auto inner = pickle_.call(call.arguments[0]);
  const auto said = inner ? special_value(pickle_, call.arguments[0], *inner) : std::nullopt;
  std::string_view layout = said ? std::string_view(said->text) : std::string_view();
  if (layout.starts_with("torch.")) layout.remove_prefix(6);
  const auto names = sparse_parts(layout);
  const std::span<const std::uint32_t> parts = pickle_.at(call.arguments[1]).items;
  if (names.empty() || layout == kJagged || parts.size() < names.size() + 1 ||
      parts.size() > names.size() + 2) {
    pickle_.unsupported("sparse tensor: expected a layout of torch and its parts, found " +
                        base::quote(layout) + " and " + std::to_string(parts.size()) + " parts");
  }
  Slot made = container(call.arguments[1], NodeKind::sparse, [&](Children& to) {
    for (std::size_t i = 0; i < names.size(); ++i) add(to, std::string(names[i]), parts[i]);
  });
  auto& node = std::get<TensorDict>(made);
  node.for_each([&](const std::string& key, const TensorDict::Item& item) {
    if (std::holds_alternative<Leaf>(item)) return;
    pickle_.corrupt("sparse tensor: " + key + ": expected a tensor, found another value");
  });
  node.info().layout = layout;
  node.info().dense_shape = pickle_.lengths(parts[names.size()], "shape of a sparse tensor");
  if (parts.size() == names.size() + 2) {
    node.info().is_coalesced = pickle_.at(parts[names.size() + 1]).integer != 0;
  }
  return made;
}

bool TreeBuilder::is_jagged(const Pickle::Call& call) const {
  return call.is("torch._tensor", "_rebuild_from_type_v2") && call.arguments.size() == 4 &&
         pickle_.is_global(call.arguments[0], "torch.nested._internal.nested_tensor",
                           "_rebuild_njt");
}

Node::Slot TreeBuilder::jagged(const Pickle::Call& call) {
  const PickleNode arguments = pickle_.at(call.arguments[2]);
  const bool is_one = arguments.kind == PickleKind::tuple && arguments.items.size() == 1 &&
                      pickle_.at(arguments.items[0]).kind == PickleKind::dict;
  if (!is_one) {
    pickle_.corrupt("jagged tensor: expected a dict of its parts, found " +
                    pickle_.describe(call.arguments[2]));
  }
  const std::span<const std::uint32_t> fields = pickle_.at(arguments.items[0]).items;
  const auto field = [&](std::string_view name) -> std::optional<std::uint32_t> {
    for (std::size_t i = 0; i + 1 < fields.size(); i += 2) {
      if (pickle_.text(fields[i]) == name) return fields[i + 1];
    }
    return std::nullopt;
  };
  Slot made = container(arguments.items[0], NodeKind::sparse, [&](Children& to) {
    for (const char* name : {"values", "offsets", "lengths"}) {
      const auto part = field(name);
      const bool is_none = !part || pickle_.at(*part).kind == PickleKind::none;
      if (name == std::string_view("lengths") && is_none) continue;
      if (part) add(to, name, *part);
      if (!part || !std::holds_alternative<Leaf>(to.entries.back().slot)) {
        pickle_.corrupt("jagged tensor: " + std::string(name) +
                        ": expected a tensor, found another value");
      }
    }
  });
  const auto& node = std::get<TensorDict>(made);
  Shape shape = std::get<Leaf>(node.get("values")).shape();
  const Shape offsets = std::get<Leaf>(node.get("offsets")).shape();
  const auto ragged = field("_ragged_idx");
  const std::uint64_t at = ragged ? pickle_.natural(*ragged, "ragged dimension") : 0;
  if (at < 1 || at > shape.size() || offsets.size() != 1 || offsets[0] < 1) {
    pickle_.corrupt(
        "jagged tensor: expected offsets [n + 1] and a dimension of the values, found " +
        base::list_text(offsets) + " and " + std::to_string(at));
  }
  shape[static_cast<std::size_t>(at - 1)] = -1;
  shape.insert(shape.begin(), offsets[0] - 1);
  NodeInfo& info = std::get<TensorDict>(made).info();
  info.layout = kJagged;
  info.dense_shape = std::move(shape);
  return made;
}

bool TreeBuilder::is_meta_parameter(const Pickle::Call& call) const {
  if (call.module != "torch._utils" || !call.name.starts_with("_rebuild_parameter")) return false;
  const auto inner = call.arguments.empty() ? std::nullopt : pickle_.call(call.arguments[0]);
  return inner && opaque_name(pickle_, call.arguments[0]) == kMetaTensor;
}

Node::Slot TreeBuilder::meta_parameter(const Pickle::Call& call) {
  pickle_.require_arguments(call, 3, 4);
  const PickleNode requires_grad = pickle_.at(call.arguments[1]);
  if (requires_grad.kind != PickleKind::boolean) {
    pickle_.corrupt("requires_grad: expected a bool, found " + pickle_.describe(call.arguments[1]));
  }
  Slot made = opaque(call.arguments[0]);
  std::get<TensorDict>(made).set("parameter", NonTensor{Value(requires_grad.integer != 0)});
  return made;
}

}  // namespace tenfold::detail::formats::torch_file
