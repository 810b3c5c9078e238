#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

#include "base/fail.hpp"
#include "core/tree/node.hpp"
#include "formats/torch_file/node.hpp"
#include "formats/torch_file/pickle.hpp"
#include "formats/torch_file/tensor.hpp"

namespace tenfold::detail::formats::torch_file {

/// Builds the tree of the pickle in a file of torch.save. See tree.hpp for supported objects,
/// tree.cpp for opaque nodes, tensor.cpp for tensors.
class TreeBuilder {
 public:
  TreeBuilder(const codecs::PickleGraph& graph, const std::shared_ptr<Storages>& storages,
              const base::Where& where)
      : pickle_(graph, where), tensors_(pickle_, storages), open_(graph.nodes.size(), false) {}

  /// Implements build_tree() for the node `id` of the pickle.
  TensorDict root(std::uint32_t id);
  /// Implements build_object() for the node `id` of the pickle.
  TensorDict::Item object(std::uint32_t id);

 private:
  using Slot = Node::Slot;  ///< what a node of the pickle becomes: Leaf, NonTensor or TensorDict

  /// Marks a node of the pickle as being converted, to find cycles, and counts the depth.
  class Entered {
   public:
    Entered(TreeBuilder& builder, std::uint32_t id) : builder_(builder), id_(id) {
      builder_.open_[id_] = true;
      ++builder_.depth_;
    }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    ~Entered() {
      --builder_.depth_;
      builder_.open_[id_] = false;
    }

   private:
    TreeBuilder& builder_;
    std::uint32_t id_;
  };

  /// Converts a node. If convert_readable() throws Error(unsupported), returns an opaque node with
  /// the reason, so that other nodes are not affected. Throws any other error, and an
  /// Error(unsupported) that concerns the whole pickle: it is nested too deeply, or repeats shared
  /// objects too often.
  Slot convert(std::uint32_t id);
  Slot convert_readable(std::uint32_t id);
  Slot special(Value::Special::Type type, std::string_view text) const;
  [[noreturn]] void refuse(std::uint32_t id, const std::string& remedy) const;

  bool has_valid_text(std::uint32_t id) const;
  std::string valid_text(std::uint32_t id) const;
  Slot of_global(std::uint32_t id);
  Slot of_call(std::uint32_t id);

  // The conversion recurses for each level of the tree, up to kMaxDepth. Functions for rare objects
  // are not inlined, so that their variables do not enlarge the stack frame of each level.

  [[gnu::noinline]] Slot of_other_call(std::uint32_t id, const Pickle::Call& call);
  [[gnu::noinline]] Slot called_set(std::uint32_t id, Value::Special::Type type,
                                    const Pickle::Call& call);
  [[gnu::noinline]] Slot set_of(std::uint32_t id, Value::Special::Type type,
                                std::span<const std::uint32_t> items);

  /// Makes an opaque node for a value whose conversion threw `error`.
  [[gnu::noinline]] Slot unreadable(std::uint32_t id, const Error& error);

  /// Returns the arguments (bytes, "utf-8", "surrogatepass") with which a Python call would decode
  /// `bytes` to a str.
  static Children text_parts(std::string_view bytes);
  Slot opaque_node(std::uint32_t id, Children parts, std::string problem);

  /// Describes an object in an opaque node: the function that the pickle would call, its arguments,
  /// and the changes of its result (add_history()). Nothing is called.
  [[gnu::noinline]] Slot opaque(std::uint32_t id);

  /// Adds the changes of an object after its creation, if there are any: a list "items" of the
  /// values that were added, a list "entries" of alternating keys and values that were set, and an
  /// entry "state", the last state that was set.
  void add_history(Children& to, std::uint32_t id);
  void add_list(Children& to, const std::string& key, const std::vector<std::uint32_t>& items);

  /// Converts the call _rebuild_sparse_tensor(layout, components). The components of the layout COO
  /// are (indices, values, size[, is_coalesced]); those of CSR, CSC, BSR and BSC are (compressed
  /// indices, plain indices, values, size).
  [[gnu::noinline]] Slot sparse(const Pickle::Call& call);
  /// Throws if `part`, a part of a sparse or jagged tensor, is not a tensor: Error(unsupported) if
  /// it is an opaque node, as for a tensor on the meta device, else Error(corrupt). `name` is for
  /// the message.
  void require_tensor(const Slot& part, const std::string& name) const;

  /// Returns the call of _rebuild_qtensor: `call` itself, or its first argument if `call` creates a
  /// Parameter; nullopt for other calls. The tree does not record that the tensor is a Parameter.
  /// This loses no gradient, because quantized tensors have no gradients in torch.
  std::optional<Pickle::Call> quantized_call(const Pickle::Call& call) const;
  [[gnu::noinline]] Slot quantized(std::uint32_t id, const Pickle::Call& call);
  void require_numbers(std::span<const std::uint32_t> arguments) const;
  void require_channels(const Children& parts, const Shape& shape, std::uint64_t axis) const;

  /// True if `call` creates a jagged tensor: a call of _rebuild_from_type_v2 with the function
  /// _rebuild_njt. The dict in its arguments has values, offsets, lengths, _ragged_idx, and derived
  /// values, which are ignored.
  bool is_jagged(const Pickle::Call& call) const;
  [[gnu::noinline]] Slot jagged(const Pickle::Call& call);

  /// True if `call` creates a Parameter whose tensor is on the meta device and so has no bytes.
  /// meta_parameter() converts it to an opaque node with an entry "parameter", whose value is the
  /// bool requires_grad.
  bool is_meta_parameter(const Pickle::Call& call) const;
  [[gnu::noinline]] Slot meta_parameter(const Pickle::Call& call);

  Slot of_collections(std::uint32_t id, const Pickle::Call& call);
  [[gnu::noinline]] Slot counter(std::uint32_t id, const Pickle::Call& call);

  template <class Fill>
  Slot container(std::uint32_t id, NodeKind kind, const Fill& fill) {
    if (open_[id]) {
      throw pickle_.unsupported().problem("it contains itself").expected("a tree").found("a cycle");
    }
    if (depth_ >= kMaxDepth) {
      is_too_deep_ = true;
      throw pickle_.unsupported()
          .problem("nested too deeply")
          .expected("at most ", kMaxDepth, " levels")
          .found("more");
    }
    const bool forced = std::exchange(force_node_, false);
    Children children;
    {
      const Entered entered(*this, id);
      fill(children);
      add_unreadable_pairs(children);
    }
    return container_of(pickle_, std::move(children), kind, forced);
  }

  void add(Children& to, std::string key, std::uint32_t value);
  void add_items(Children& to, std::span<const std::uint32_t> items);
  static void reserve(Children& to, std::size_t more);
  void add_pairs(Children& to, std::span<const std::uint32_t> items);

  /// Adds the pairs of a list [[key, value], ...]. Python 2 pickles an OrderedDict as a call with
  /// such a list.
  void add_listed_pairs(Children& to, std::uint32_t list);
  void add_changes(Children& to, std::uint32_t id);

  /// Adds the attribute `_metadata` of a state dict, which has the versions of the module's layers.
  /// Ignores other attributes of a dict, with a warning.
  void add_attributes(Children& to, std::uint32_t id);
  void add_pair(Children& to, std::uint32_t key, std::uint32_t value);
  /// Converts a key that is not a string. Returns nullopt if a tree does not support it.
  std::optional<Value> typed_key(std::uint32_t id);

  /// Adds the pairs of Children::unreadable as opaque nodes, under names that no other key has.
  [[gnu::noinline]] void add_unreadable_pairs(Children& to);

  Pickle pickle_;
  Tensors tensors_;
  std::vector<bool> open_;  ///< by node: true for the containers that enclose the current node
  std::size_t depth_ = 0;
  bool force_node_ = false;  ///< convert the next container to a node even without tensors
  bool is_too_deep_ = false;
};

}  // namespace tenfold::detail::formats::torch_file
