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

/// The type of a node in the program that saved it.
enum class NodeKind : std::uint8_t {
  tensordict,    ///< keys, batch_size, dim names
  dict,          ///< a Python dict; its keys need not have been str (int_keys, typed_keys)
  ordered_dict,  ///< collections.OrderedDict
  list,          ///< keys "0", "1", ...
  tuple,         ///< keys "0", "1", ...
  tensorclass,   ///< as tensordict, with the name of its class
  lazy_stack,    ///< keys "0", "1", ...: nodes to be stacked along stack_dim
  sparse,        ///< a sparse tensor of torch: its component tensors, by torch's names
  opaque,        ///< an object that a pickle would create by calling class_name: "args", "state",
                 ///< ...; or an unreadable object of a known class (problem)
};

/// "tensordict", "dict", "ordered_dict", "list", "tuple", "tensorclass", "lazy_stack", "sparse",
/// "opaque".
TENFOLD_API std::string_view name(NodeKind kind) noexcept;
TENFOLD_API std::optional<NodeKind> node_kind_from_name(std::string_view name) noexcept;

/// A JSON value in the tree: tensordict's NonTensorData, or a NonTensorStack of them.
struct NonTensor {
  Value value;
  bool is_stack = false;       ///< NonTensorStack: `value` is a (nested) list of items
  std::int64_t stack_dim = 0;  ///< of a NonTensorStack
  std::string device{};        ///< of a NonTensorStack: as saved, "cpu"; empty for none
  bool operator==(const NonTensor&) const = default;
};

using DimNames = std::vector<std::optional<std::string>>;

/// The class_name of an entry of a bundle in no known format (a README, a script).
inline constexpr std::string_view kRefusedEntry = "refused entry";

/// The properties of a node other than its entries.
struct NodeInfo {
  NodeKind kind = NodeKind::tensordict;
  bool int_keys = false;       ///< dict, ordered_dict: all keys were Python int
  TypedKeys typed_keys{};      ///< dict, ordered_dict: keys that were not str
  Shape batch_size{};          ///< tensordict, tensorclass
  DimNames names{};            ///< empty, or one per batch dimension
  std::string class_name{};    ///< tensorclass: as str(cls) in Python; opaque: "module.Class"
  std::int64_t stack_dim = 0;  ///< lazy_stack
  std::optional<std::string> stack_dim_name{};  ///< lazy_stack
  std::string device{};                         ///< as saved, "cpu"; empty for none
  std::string layout{};                         ///< sparse: "sparse_coo", "sparse_csr", ...
  Shape dense_shape{};                          ///< sparse
  bool is_coalesced = false;                    ///< sparse, of layout "sparse_coo"
  std::string problem{};  ///< opaque: why it cannot be read; empty if because of its class
  /// ordered_dict: `_metadata` of a module's state_dict(), the versions of its layers.
  std::optional<Value> module_versions{};
  /// Root of a data set: the schema of its columns, stored in the notes.
  std::optional<Value> schema{};
  std::map<std::string, std::string> metadata{};  ///< root: safetensors' `__metadata__`
  /// Root of kind dict: its only entry is a tensor or JSON value that was saved without a name. The
  /// key is "value", in an archive of NumPy files "arr_0", as in numpy.savez.
  bool is_bare = false;

  /// True for an entry of a bundle that cannot be read: `problem` is the reason. Its key is listed,
  /// and for_each() visits it, with the bytes of a file under `bytes`; get() throws.
  bool is_refused() const noexcept {
    return kind == NodeKind::opaque && class_name == kRefusedEntry;
  }
};

/// A node of the tree: ordered keys, each naming a tensor, a JSON value or another node.
/// A TensorDict is a handle: copies share the node, as in Python. A node opened from a file reads
/// its metadata when it is entered and its tensors when they are accessed.
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
  /// As get(), this takes the stem of its file's name ("x" of "x.npy") for the one key of a bare
  /// root that was opened.
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

  /// The node of `key`. A JSON object or array (a container without tensors) gives a new node of
  /// its members. Throws Error(key_not_found), also if the entry is a tensor.
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
  /// nodes included; unbatched leaves and JSON values are kept. Maps every tensor.
  /// Throws Error(invalid_argument) if batch_size is [] or the index is out of range.
  TensorDict select_row(std::int64_t index) const;
  TensorDict narrow_rows(std::int64_t begin, std::int64_t end) const;

  /// The path that this node was read from, for messages: "ckpt", "ckpt/model"; empty in memory.
  const std::string& where() const;

  /// The shared state, for the library's own use; same_node() is true if two handles share it.
  const std::shared_ptr<Node>& node() const noexcept { return node_; }
  bool same_node(const TensorDict& other) const noexcept { return node_ == other.node_; }

  /// Syncs every mapped tensor of a tree opened "r+" to disk (fdatasync). An archive then reads the
  /// written tensors for their CRC-32s, which `monitor` observes.
  void flush(Monitor* monitor = nullptr) const;

 private:
  std::shared_ptr<Node> node_;
};

/// The tree of a single value: a bare root; for a node, the node. A list, tuple or dict of JSON
/// values becomes a node of its members.
TENFOLD_API TensorDict bare_tree(TensorDict::Item value);

/// True if the root is marked as bare and has one entry: a tree that was changed is an ordinary
/// one.
TENFOLD_API bool is_bare(const TensorDict& root);

/// The argument of bare_tree(): the value of a bare root, or the tree itself.
TENFOLD_API TensorDict::Item bare_value(const TensorDict& root);

/// For a bare root that was opened, the dict {stem of the file's name: value}, as the command line
/// shows it; otherwise the tree itself.
TENFOLD_API TensorDict named_by_file(const TensorDict& root);

/// "model.encoder.weight": the keys joined with dots, as in the command line and globs.
TENFOLD_API std::string dotted(const KeyPath& path);

}  // namespace tenfold
