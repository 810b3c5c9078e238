#include "formats/torch_file/plan.hpp"

#include <charconv>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "codecs/pickle/text.hpp"
#include "codecs/pickle/writer.hpp"
#include "core/tensor/torch_names.hpp"
#include "core/tree/node.hpp"
#include "core/tree/sparse.hpp"
#include "core/tree/typed_keys.hpp"

namespace tenfold::detail::formats::torch_file {
namespace {

constexpr std::string_view kTorchDot = "torch.";
constexpr std::uint64_t kMaxTextBytes = 0xffffffff;

/// The leaves of a tree in the order in which the pickle names them. A node that is there twice is
/// pickled once.
class LeafCollector {
 public:
  void node(const TensorDict& tree) {
    if (!seen_.insert(tree.node().get()).second) return;
    tree.for_each([&](const std::string&, const TensorDict::Item& item) {
      if (const auto* leaf = std::get_if<Leaf>(&item)) leaves.push_back(*leaf);
      if (const auto* below = std::get_if<TensorDict>(&item)) node(*below);
    });
  }

  std::vector<Leaf> leaves;

 private:
  std::unordered_set<const Node*> seen_;
};

class Pickler {
 public:
  Pickler(const FileLayout& layout, const std::vector<Leaf>& leaves)
      : layout_(layout), leaves_(leaves) {}

  std::string run(const TensorDict::Item& root) {
    item(root);
    return to_.take();
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(
        ErrorCode::unsupported,
        "pt: " + (keys_.empty() ? std::string("root") : "key " + base::quote(dotted(keys_))) +
            ": " + what);
  }

  void enter() {
    if (++depth_ <= kMaxDepth) return;
    refuse("nested too deeply: expected at most " + std::to_string(kMaxDepth) +
           " levels, found more; a node may contain itself");
  }
  void leave() { --depth_; }

  void node(const TensorDict& tree) {
    const auto known = nodes_.find(tree.node().get());
    if (known != nodes_.end()) return to_.push(known->second);
    enter();
    const NodeInfo& info = tree.info();
    const auto items = [&](bool has_keys) {
      tree.for_each([&](const std::string& name, const TensorDict::Item& item) {
        keys_.push_back(name);
        if (has_keys) key(name, info);
        this->item(item);
        keys_.pop_back();
      });
    };
    switch (info.kind) {
      case NodeKind::list:
      case NodeKind::lazy_stack:
        to_.begin_list();
        items(false);
        to_.end_list();
        break;
      case NodeKind::tuple:
        to_.begin_tuple();
        items(false);
        to_.end_tuple();
        break;
      case NodeKind::ordered_dict:
        to_.begin_ordered_dict();
        items(true);
        to_.end_ordered_dict();
        if (info.module_versions) module_versions(*info.module_versions);
        break;
      case NodeKind::sparse:
        sparse(tree);
        break;
      case NodeKind::opaque:
        refuse("an object of " + base::quote(info.class_name) +
               " cannot be stored: expected tensors, JSON values and containers, found what was "
               "not read");
      case NodeKind::dict:
      case NodeKind::tensordict:
      case NodeKind::tensorclass:
        to_.begin_dict();
        items(true);
        to_.end_dict();
        break;
    }
    nodes_.emplace(tree.node().get(), to_.remember());
    leave();
  }

  /// The attribute that a module's state_dict() attaches to its dict.
  void module_versions(const Value& versions) {
    to_.begin_dict();
    to_.known_text("_metadata");
    Value ordered = versions;
    std::get<Value::Object>(ordered.data()).ordered = true;
    value(ordered);
    to_.end_dict();
    to_.set_attributes();
  }

  void sparse(const TensorDict& tree) {
    const NodeInfo& info = tree.info();
    if (info.layout == kJagged) {
      refuse(
          "a jagged nested tensor cannot be stored: expected a dense or sparse one, found one of "
          "layout \"jagged\"; the format \"memmap\" can");
    }
    to_.global("torch._utils", "_rebuild_sparse_tensor");
    to_.begin_tuple();
    call("torch.serialization", "_get_layout", [&] { to_.known_text("torch." + info.layout); });
    to_.begin_tuple();
    tree.for_each([&](const std::string& name, const TensorDict::Item& item) {
      keys_.push_back(name);
      this->item(item);
      keys_.pop_back();
    });
    call("torch", "Size", [&] { write_lengths(info.dense_shape); });
    if (info.layout == "sparse_coo") to_.boolean(info.is_coalesced);
    to_.end_tuple();
    to_.end_tuple();
    to_.call();
  }

  /// A call of a function of Python or torch; `arguments` pushes what it is called with.
  template <class Arguments>
  void call(std::string_view module, std::string_view name, const Arguments& arguments) {
    to_.global(module, name);
    to_.begin_tuple();
    arguments();
    to_.end_tuple();
    to_.call();
  }

  void item(const TensorDict::Item& item) {
    if (std::holds_alternative<Leaf>(item)) {
      tensor();
    } else if (const auto* plain = std::get_if<NonTensor>(&item)) {
      value(plain->value);
    } else {
      node(std::get<TensorDict>(item));
    }
  }

  /// `of`: a NodeInfo or a Value::Object.
  template <class Dict>
  void key(const std::string& name, const Dict& of) {
    if (of.int_keys) return integer(name);
    if (!of.typed_keys.empty()) {
      if (const Value* typed = find_typed_key(of.typed_keys, name)) return value(*typed);
    }
    if (!base::is_utf8(name)) {
      refuse("a key that is no text cannot be stored: expected UTF-8, found other bytes");
    }
    to_.known_text(name);
  }

  void integer(std::string_view digits) {
    std::int64_t small = 0;
    const char* const end = digits.data() + digits.size();
    const auto [stopped, error] = std::from_chars(digits.data(), end, small);
    if (error == std::errc() && stopped == end) return to_.integer(small);
    if (!codecs::pickle_decimal(digits) || !to_.big_integer(digits)) {
      refuse("an integer that torch cannot load: expected at most 255 bytes, found " +
             std::to_string(digits.size()) + " digits");
    }
  }

  void text(const std::string& text) {
    // A pickle could hold lone surrogates, but the reader refuses them.
    if (text.size() > kMaxTextBytes || !base::is_utf8(text)) {
      refuse("text that cannot be stored: expected UTF-8 of less than 4 GiB, found " +
             std::to_string(text.size()) + " bytes");
    }
    to_.text(text);
  }

  void value(const Value& value) {
    std::visit([&](const auto& held) { write(held); }, value.data());
  }
  void write(const Value::Null&) { to_.none(); }
  void write(bool held) { to_.boolean(held); }
  void write(std::int64_t held) { to_.integer(held); }
  void write(const Value::BigInt& held) { integer(held.digits); }
  void write(double held) { to_.number(held); }
  void write(const std::string& held) { text(held); }
  void items(const std::vector<Value>& values) {
    std::size_t position = 0;
    for (const Value& item : values) {
      keys_.push_back(std::to_string(position++));
      value(item);
      keys_.pop_back();
    }
  }
  void write(const Value::List& held) {
    enter();
    to_.begin_list();
    items(held.items);
    to_.end_list();
    leave();
  }
  void write(const Value::Tuple& held) {
    enter();
    to_.begin_tuple();
    items(held.items);
    to_.end_tuple();
    leave();
  }
  void write(const Value::Object& held) {
    enter();
    if (held.ordered) {
      to_.begin_ordered_dict();
    } else {
      to_.begin_dict();
    }
    for (const auto& [name, member] : held.members) {
      keys_.push_back(name);
      key(name, held);
      value(member);
      keys_.pop_back();
    }
    to_.end_dict();
    leave();
  }

  void write(const Value::Special& held) {
    using enum Value::Special::Type;
    const auto listed = [&] {
      to_.begin_list();
      items(held.items);
      to_.end_list();
    };
    switch (held.type) {
      case Value::Special::Type::bytes:
        return latin1_bytes(held.text);
      case bytearray:
        return call("builtins", "bytearray", [&] { latin1_bytes(held.text); });
      case Value::Special::Type::complex:
        return call("builtins", "complex", [&] { items(held.items); });
      case set:
        return call("builtins", "set", listed);
      case frozenset:
        refuse("a frozenset cannot be stored: expected what torch loads, found one; store a set");
      case counter:
        return call("collections", "Counter", [&] { items(held.items); });
      case size:
        return call("torch", "Size", [&] {
          to_.begin_tuple();
          items(held.items);
          to_.end_tuple();
        });
      case dtype:
        return torch_constant(held.text, "dtype", is_torch_dtype);
      case qscheme:
        return torch_constant(held.text, "qscheme", is_torch_qscheme);
      case device:
        return call("torch", "device", [&] { text(held.text); });
      case layout:
        return call("torch.serialization", "_get_layout", [&] { text(held.text); });
    }
  }

  /// What torch.load finds by its name.
  void torch_constant(std::string_view text, const std::string& what,
                      bool (*is_known)(std::string_view) noexcept) {
    if (!text.starts_with(kTorchDot) || !is_known(text.substr(kTorchDot.size()))) {
      refuse("a " + what + " cannot be stored: expected one of torch, found " + base::quote(text));
    }
    to_.global("torch", text.substr(kTorchDot.size()));
  }

  /// As Python does in protocol 2, in which bytes have no opcode.
  void latin1_bytes(const std::string& bytes) {
    std::string encoded;
    for (const char byte : bytes) {
      const auto value = static_cast<unsigned char>(byte);
      if (value >= 0x80) encoded += static_cast<char>(0xC0U | value >> 6U);
      encoded += static_cast<char>(value >= 0x80 ? 0x80U | (value & 0x3FU) : value);
    }
    call("_codecs", "encode", [&] {
      text(encoded);
      to_.known_text("latin1");
    });
  }

  /// The next leaf: a call of torch's function that makes a tensor of a storage.
  void tensor() {
    const Leaf& leaf = leaves_[next_leaf_];
    const TensorLayout& tensor = layout_.tensors[next_leaf_++];
    const StorageLayout& storage = layout_.storages[tensor.storage];
    if (leaf.is_nested()) {
      refuse("a nested tensor cannot be stored: expected a dense one, found one of " +
             std::to_string(leaf.shape().empty() ? 0 : leaf.shape()[0]) +
             " components; save as a folder, which holds it");
    }
    const bool is_parameter =
        leaf.grad() == Grad::parameter || leaf.grad() == Grad::frozen_parameter;
    if (is_parameter) {
      to_.global("torch._utils", "_rebuild_parameter");
      to_.begin_tuple();
    }
    to_.global("torch._utils", storage.untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    to_.begin_tuple();
    write_storage(tensor.storage, storage);
    to_.integer(static_cast<std::int64_t>(tensor.offset));
    write_lengths(leaf.shape());
    write_lengths(tensor.strides);
    write_grad(leaf.grad() == Grad::required);
    if (storage.untyped) to_.global("torch", name(leaf.dtype()));
    to_.end_tuple();
    to_.call();
    if (!is_parameter) return;
    write_grad(leaf.grad() == Grad::parameter);
    to_.end_tuple();
    to_.call();
  }

  /// What requires_grad says, and no hooks.
  void write_grad(bool is_required) {
    to_.boolean(is_required);
    to_.begin_ordered_dict();
    to_.end_ordered_dict();
  }

  void write_storage(std::size_t number, const StorageLayout& storage) {
    to_.begin_tuple();
    to_.known_text("storage");
    if (storage.untyped) {
      to_.global("torch.storage", "UntypedStorage");
    } else {
      to_.global("torch", storage_class(storage.dtype));
    }
    to_.known_text(std::to_string(number));
    to_.known_text("cpu");
    const std::uint64_t item_bytes = storage.untyped ? 1 : itemsize(storage.dtype);
    to_.integer(static_cast<std::int64_t>(storage.bytes.nbytes() / item_bytes));
    to_.end_tuple();
    to_.persistent();
  }

  void write_lengths(const Shape& lengths) {
    to_.begin_tuple();
    for (const std::int64_t length : lengths) to_.integer(length);
    to_.end_tuple();
  }

  const FileLayout& layout_;
  const std::vector<Leaf>& leaves_;
  codecs::PickleWriter to_;
  std::unordered_map<const Node*, std::uint32_t> nodes_;  ///< pickled before
  KeyPath keys_;
  std::size_t next_leaf_ = 0;
  std::size_t depth_ = 0;
};

}  // namespace

Plan make_plan(const TensorDict& tree) { return make_object_plan(tree); }

Plan make_object_plan(const TensorDict::Item& item) {
  LeafCollector collector;
  if (const auto* leaf = std::get_if<Leaf>(&item)) collector.leaves.push_back(*leaf);
  if (const auto* tree = std::get_if<TensorDict>(&item)) collector.node(*tree);
  FileLayout layout = lay_out_file(collector.leaves);
  Plan plan;
  plan.pickle = Pickler(layout, collector.leaves).run(item);
  plan.storages = std::move(layout.storages);
  return plan;
}

}  // namespace tenfold::detail::formats::torch_file
