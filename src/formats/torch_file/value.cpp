#include "formats/torch_file/value.hpp"

#include <string>
#include <utility>

#include "base/text.hpp"
#include "core/tensor/torch_names.hpp"
#include "core/tree/sparse.hpp"

namespace tenfold::detail::formats::torch_file {

using codecs::PickleKind;
using codecs::PickleNode;
using Special = Value::Special;

namespace {

Special of_text(Special::Type type, std::string text) {
  Special special;
  special.type = type;
  special.text = std::move(text);
  return special;
}

double real(const Pickle& pickle, std::uint32_t id) {
  const PickleNode node = pickle.at(id);
  if (node.kind == PickleKind::number) return node.number;
  if (node.kind == PickleKind::integer) return static_cast<double>(node.integer);
  pickle.corrupt("complex: expected two numbers, found " + pickle.describe(id));
}

std::string text(const Pickle& pickle, std::uint32_t id, const std::string& subject) {
  const auto found = pickle.text(id);
  if (found && base::is_utf8(*found)) return std::string(*found);
  pickle.corrupt(subject + ": expected text, found " + pickle.describe(id));
}

/// bytearray(), bytearray(bytes), bytearray(text, "latin-1").
std::optional<Special> bytearray(const Pickle& pickle, const Pickle::Call& call) {
  pickle.require_arguments(call, 0, 2);
  if (call.arguments.empty()) return of_text(Special::Type::bytearray, "");
  auto bytes = call.arguments.size() == 1 ? pickle.bytes(call.arguments[0])
                                          : pickle.latin1(call.arguments[0], call.arguments[1]);
  if (!bytes) return std::nullopt;
  return of_text(Special::Type::bytearray, *std::move(bytes));
}

Special device(const Pickle& pickle, const Pickle::Call& call) {
  pickle.require_arguments(call, 1, 2);
  std::string name = text(pickle, call.arguments[0], "device");
  if (call.arguments.size() == 2) {
    name += ":" + std::to_string(pickle.natural(call.arguments[1], "device index"));
  }
  if (!is_torch_device(name)) {
    pickle.corrupt("device: expected a type and an index of at most 127, as in \"cuda:0\", found " +
                   base::quote(name));
  }
  return of_text(Special::Type::device, std::move(name));
}

}  // namespace

bool is_builtin(const Pickle::Call& call, std::string_view name) {
  return call.name == name && (call.module == "builtins" || call.module == "__builtin__");
}

std::optional<Special> special_value(const Pickle& pickle, std::uint32_t id,
                                     const Pickle::Call& call) {
  if (call.is("torch", "Size")) {
    pickle.require_arguments(call, 1, 1);
    Special size = of_text(Special::Type::size, "");
    for (const std::int64_t length : pickle.lengths(id, "torch.Size")) {
      size.items.emplace_back(length);
    }
    return size;
  }
  if (call.is("torch", "device")) return device(pickle, call);
  if (call.is("torch.serialization", "_get_layout")) {
    pickle.require_arguments(call, 1, 1);
    std::string name = text(pickle, call.arguments[0], "layout");
    if (!is_torch_layout(name)) {
      pickle.corrupt("layout: expected one of torch's, as \"torch.strided\", found " +
                     base::quote(name));
    }
    return of_text(Special::Type::layout, std::move(name));
  }
  if (is_builtin(call, "complex")) {
    pickle.require_arguments(call, 2, 2);
    Special number = of_text(Special::Type::complex, "");
    for (const std::uint32_t part : call.arguments) number.items.emplace_back(real(pickle, part));
    return number;
  }
  if (is_builtin(call, "bytearray")) return bytearray(pickle, call);
  if (auto bytes = pickle.bytes(id)) return of_text(Special::Type::bytes, *std::move(bytes));
  return std::nullopt;
}

void check_factory(const Pickle& pickle, std::uint32_t id) {
  const PickleNode node = pickle.at(id);
  if (node.kind == PickleKind::none) return;
  const bool plain =
      node.kind == PickleKind::global &&
      (node.text == "builtins" || node.text == "__builtin__" || node.text == "collections");
  if (plain) {
    for (const char* name : {"list", "dict", "set", "int", "float", "str", "bool", "tuple",
                             "OrderedDict", "Counter"}) {
      if (node.name == name) return;
    }
  }
  if (node.kind == PickleKind::global) pickle.refuse_global(node.text, node.name);
  pickle.unsupported("default of a dict: expected a class of Python's, found " +
                     pickle.describe(id));
}

}  // namespace tenfold::detail::formats::torch_file
