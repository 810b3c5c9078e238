#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tenfold/leaf.hpp>
#include <tenfold/tensor.hpp>
#include <tenfold/value.hpp>

namespace tenfold {

class Monitor;
struct Node;

/// Keys from a node down to an entry: {"model", "encoder.weight"}.
using KeyPath = std::vector<std::string>;

/// What a node was in the program that saved it.
enum class NodeKind : std::uint8_t {
  tensordict,    ///< keys, batch_size, dim names
  dict,          ///< a Python dict; its keys may have been other than str (int_keys,
                 ///< typed_keys)
  ordered_dict,  ///< collections.OrderedDict
  list,          ///< keys "0", "1", ...
  tuple,         ///< keys "0", "1", ...
  tensorclass,   ///< as tensordict, with the name of its class
  lazy_stack,    ///< keys "0", "1", ...: nodes to be stacked along stack_dim
  sparse,        ///< a sparse tensor of torch: its parts, by the names that torch gives them
  opaque,        ///< what a pickle would make by calling class_name: "args", "state", ...; and what
                 ///< of a known class cannot be read (problem)
};

/// "tensordict", "dict", "ordered_dict", "list", "tuple", "tensorclass", "lazy_stack", "sparse",
/// "opaque".
TENFOLD_API std::string_view name(NodeKind kind) noexcept;
TENFOLD_API std::optional<NodeKind> node_kind_from_name(std::string_view name) noexcept;

/// A JSON value in the tree: tensordict's NonTensorData, or a NonTensorStack of them.
struct NonTensor {
  Value value;
  bool is_stack = false;       ///< NonTensorStack: `value` is a (nested) list of the items
  std::int64_t stack_dim = 0;  ///< of a NonTensorStack
  std::string device{};        ///< of a NonTensorStack: as saved, "cpu"; empty for none
  bool operator==(const NonTensor&) const = default;
};

using DimNames = std::vector<std::optional<std::string>>;

/// The class_name of an entry of a bundle that is in no known format (a README, a script).
inline constexpr std::string_view kRefusedEntry = "refused entry";

/// Everything a node knows besides its entries.
struct NodeInfo {
  NodeKind kind = NodeKind::tensordict;
  bool int_keys = false;       ///< dict, ordered_dict: all keys were Python int
  TypedKeys typed_keys{};      ///< dict, ordered_dict: what they were, where some were no text
  Shape batch_size{};          ///< tensordict, tensorclass
  DimNames names{};            ///< empty, or one per batch dimension
  std::string class_name{};    ///< tensorclass: as str(cls) in Python; opaque: "module.Class"
  std::int64_t stack_dim = 0;  ///< lazy_stack
  std::optional<std::string> stack_dim_name{};  ///< lazy_stack
  std::string device{};                         ///< as saved, "cpu"; empty for none
  std::string layout{};                         ///< sparse: "sparse_coo", "sparse_csr", ...
  Shape dense_shape{};                          ///< sparse
  bool is_coalesced = false;                    ///< sparse, of layout "sparse_coo"
  std::string problem{};  ///< opaque: why it cannot be read; empty if that is its class
  /// ordered_dict: `_metadata`, by which a module's state_dict() tells the versions of its layers.
  std::optional<Value> module_versions{};
  /// Of a data set's root: what its columns mean, kept in the notes.
  std::optional<Value> schema{};
  std::map<std::string, std::string> metadata{};  ///< of a root: safetensors' `__metadata__`

  /// True for an entry of a bundle that is not read: `problem` says why. Its key is listed, and
  /// for_each() gives it, with the bytes of a file under `bytes`; get() throws.
  bool is_refused() const noexcept {
    return kind == NodeKind::opaque && class_name == kRefusedEntry;
  }
};

/// A node of the tree: ordered keys, each naming a tensor, a JSON value or another node.
/// A TensorDict is a handle: copies share the node, as Python's do. A node that was opened from
/// a file reads its metadata when it is entered and its tensors when they are asked for.
///
/// Thread safety: concurrent readers are safe, also on a lazy node; set() needs exclusion.
class TENFOLD_API TensorDict {
 public:
  using Item = std::variant<Leaf, NonTensor, TensorDict>;

  /// An empty node of kind tensordict and batch_size [].
  TensorDict();
  explicit TensorDict(NodeInfo info);
  explicit TensorDict(std::shared_ptr<Node> node) : node_(std::move(node)) {}

  const NodeInfo& info() const;
  NodeInfo& info();
  NodeKind kind() const { return info().kind; }
  const Shape& batch_size() const { return info().batch_size; }

  /// Number of entries.
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  /// Keys in order.
  std::vector<std::string> keys() const;
  bool contains(std::string_view key) const;

  /// The entry of `key`. Throws Error(key_not_found) naming the source and near matches,
  /// Error(unsupported) for one that is not read (NodeInfo::is_refused).
  Item get(std::string_view key) const;
  Item get(const KeyPath& path) const;
  /// td.get({"model", "encoder.weight"})
  Item get(std::initializer_list<std::string> path) const { return get(KeyPath(path)); }

  /// The tensor of `key`, mapped if it is on disk: td.at("model", "encoder.weight").
  /// Throws Error(key_not_found) if there is none or it is not a tensor.
  template <class... Keys>
  Tensor at(std::string_view key, const Keys&... rest) const {
    return tensor(KeyPath{std::string(key), std::string(rest)...});
  }
  Tensor tensor(const KeyPath& path) const;

  /// The node of `key`. A JSON object or array, which is what a container without tensors is, gives
  /// a new node of its members. Throws Error(key_not_found), which says so if a tensor is there.
  TensorDict operator[](std::string_view key) const;

  /// The JSON value of `key`. Throws Error(key_not_found) if there is none or it is not JSON.
  Value value(std::string_view key) const;

  /// Adds an entry, or replaces it in place.
  void set(std::string_view key, Item item);
  void set(std::string_view key, Tensor tensor) { set(key, Item(Leaf(std::move(tensor)))); }
  void set(std::string_view key, Value value) { set(key, Item(NonTensor{std::move(value)})); }
  void set(std::string_view key, TensorDict node) { set(key, Item(std::move(node))); }

  /// Calls `visit` for each entry of this node, in order.
  void for_each(const std::function<void(const std::string& key, const Item& item)>& visit) const;

  /// Calls `visit` for each tensor and JSON value below, depth first, with its path; not for the
  /// bytes of entries that are not read (NodeInfo::is_refused).
  void for_each_leaf(const std::function<void(const KeyPath& path, const Item& item)>& visit) const;

  /// Row `index` of the first batch dimension / rows [begin, end): views of every tensor, nested
  /// nodes included; unbatched leaves and JSON values as they are. Maps every tensor.
  /// Throws Error(invalid_argument) if batch_size is [] or the index is out of range.
  TensorDict select_row(std::int64_t index) const;
  TensorDict narrow_rows(std::int64_t begin, std::int64_t end) const;

  /// Where this node was read from, for messages: "ckpt" or "ckpt/model"; empty in memory.
  const std::string& where() const;

  /// Where the lazy parts stand; same_node() tells whether two handles share one node.
  const std::shared_ptr<Node>& node() const noexcept { return node_; }
  bool same_node(const TensorDict& other) const noexcept { return node_ == other.node_; }

  /// Writes every mapped tensor of a tree that was opened "r+" to the device (fdatasync). An
  /// archive reads what was written through for its CRC-32s: that is what `monitor` watches.
  void flush(Monitor* monitor = nullptr) const;

 private:
  std::shared_ptr<Node> node_;
};

/// "model.encoder.weight": the keys joined with dots, as the command line and globs see them.
TENFOLD_API std::string dotted(const KeyPath& path);

}  // namespace tenfold
