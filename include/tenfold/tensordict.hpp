#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/leaf.hpp>
#include <tenfold/tensor.hpp>
#include <tenfold/value.hpp>

namespace tenfold {

class Monitor;

namespace detail {
struct Access;
struct Node;
}  // namespace detail

/// Keys from a node down to an entry: {"model", "encoder.weight"}.
using KeyPath = std::vector<std::string>;

/// The type of a node in the program that saved it.
enum class NodeKind : std::uint8_t {
  tensordict,    ///< a TensorDict: keys, batch_size, dim names
  dict,          ///< a Python dict; int_keys and typed_keys record keys that were not str
  ordered_dict,  ///< collections.OrderedDict
  list,          ///< keys "0", "1", ...
  tuple,         ///< keys "0", "1", ...
  tensorclass,   ///< as tensordict, with the name of its class
  lazy_stack,    ///< keys "0", "1", ...: nodes to be stacked along stack_dim
  sparse,        ///< a sparse or jagged tensor of torch: its component tensors, by torch's names
  /// An object that a pickle would create by calling NodeInfo::class_name, with the entries "args",
  /// "state", ...; or an entry that cannot be read (see NodeInfo::problem).
  opaque,
};

/// Returns the name of the kind: "tensordict", "dict", "ordered_dict", "list", "tuple",
/// "tensorclass", "lazy_stack", "sparse", "opaque".
TENFOLD_API std::string to_string(NodeKind kind);
/// Writes to_string().
TENFOLD_API std::ostream& operator<<(std::ostream& out, NodeKind kind);
/// The kind of that name; nullopt if there is none.
TENFOLD_API std::optional<NodeKind> node_kind_from_name(std::string_view name) noexcept;

/// A JSON value in the tree (tensordict's NonTensorData), or a NonTensorStack of JSON values.
struct NonTensor {
  Value value;                 ///< the value
  bool is_stack = false;       ///< NonTensorStack: `value` is a (nested) list of items
  std::int64_t stack_dim = 0;  ///< NonTensorStack: the batch dimension along which it is stacked
  std::string device{};        ///< NonTensorStack: its device as saved ("cpu"); empty for none
  /// Compares all members.
  bool operator==(const NonTensor&) const = default;
};

/// A name, or none, for each batch dimension.
using DimNames = std::vector<std::optional<std::string>>;

/// The class_name of the node that represents an unreadable entry of a bundle: a README, a script,
/// a folder of an unknown format, a symbolic link that is not followed. A bundle is a trainer's
/// folder, opened as one tree of its files.
inline constexpr std::string_view kRefusedEntry = "refused entry";

/// The properties of a node other than its entries.
struct NodeInfo {
  NodeKind kind = NodeKind::tensordict;  ///< the type of the node
  bool int_keys = false;                 ///< dict, ordered_dict: all keys were Python int
  TypedKeys typed_keys{};                ///< dict, ordered_dict: keys that were not str
  Shape batch_size{};                    ///< tensordict, tensorclass: see TensorDict::batch_size()
  DimNames names{};                      ///< one name per batch dimension, or empty
  std::string class_name{};    ///< tensorclass: as str(cls) in Python; opaque: "module.Class"
  std::int64_t stack_dim = 0;  ///< lazy_stack: the dimension along which its nodes are stacked
  std::optional<std::string> stack_dim_name{};  ///< lazy_stack: the name of stack_dim, if any
  std::string device{};                         ///< the device as saved ("cpu"); empty for none
  std::string layout{};                         ///< sparse: "sparse_coo", ..., "jagged"
  Shape dense_shape{};        ///< sparse: the shape of the tensor; -1 for a ragged dimension
  bool is_coalesced = false;  ///< layout "sparse_coo": the tensor is coalesced
  std::string problem{};  ///< opaque: why it cannot be read; empty if only its class is unsupported
  /// ordered_dict: `_metadata` of a module's state_dict(): the versions of the module's layers.
  std::optional<Value> module_versions{};
  /// Root of a data set: the schema of its columns, stored in the metadata sidecar.
  std::optional<Value> schema{};
  std::map<std::string, std::string> metadata{};  ///< root: safetensors' `__metadata__`
  /// Root of kind dict: its only entry is a tensor or JSON value that was saved without a name. Its
  /// key is "value"; in an .npz archive, the key is "arr_0", as in numpy.savez.
  bool is_bare = false;

  /// True for an entry of a bundle that cannot be read: `problem` is the reason. The parent's
  /// keys() lists the entry, and its for_each() visits it as a node. If the entry is a file, the
  /// entry "bytes" of this node is its content. The parent's get() and find() throw
  /// Error(unsupported) for the entry.
  bool is_refused() const noexcept {
    return kind == NodeKind::opaque && class_name == kRefusedEntry;
  }
};

/// A node of the tree: ordered keys, each naming a tensor, a JSON value or another node.
/// A TensorDict is a handle: copies share the node, as in Python; a moved-from TensorDict can only
/// be assigned or destroyed. In a tree that was opened from a path, tensors are read when they are
/// accessed. In a folder, the metadata of a nested node is read at the first access to that node.
///
///     tenfold::TensorDict td = tenfold::open("ckpt");
///     tenfold::Tensor w = td.at("model.encoder.weight");  // or td["model"].at("encoder.weight")
///     auto epoch = td.value<int>("epoch");
///     for (auto&& [key, item] : td["model"]) std::cout << key << "\n";
///
///     auto state = tenfold::TensorDict::dict({{"model", model}, {"epoch", 3}});
///     state.set("loss", 0.25);
///
/// **Names.** A single string names an entry by its key. If there is no such key, the string is
/// read as a path of keys joined with dots, as on the command line. So "model.encoder.weight" is
/// found whether "encoder.weight" is one key or two nested ones. If several strings or a KeyPath
/// are given, each string is one exact key.
///
/// Thread safety: concurrent readers are safe, also on a node whose entries are read on demand. No
/// other call may run concurrently with set() or with a change of info().
class TENFOLD_API TensorDict {
 public:
  /// The content of an entry.
  using Item = std::variant<Leaf, NonTensor, TensorDict>;
  struct Entry;

  /// An iterator over the entries of a node. It keeps the node alive.
  class Iterator {
   public:
    using value_type = Entry;                           ///< the entry
    using reference = Entry;                            ///< by value
    using difference_type = std::ptrdiff_t;             ///< required of iterators
    using pointer = void;                               ///< none
    using iterator_category = std::input_iterator_tag;  ///< entries are returned by value

    /// An iterator without a node.
    Iterator() = default;
    /// The entry at this position. Reads the entry's metadata if it has not been read yet.
    Entry operator*() const;
    /// Moves to the next entry.
    Iterator& operator++() {
      ++position_;
      return *this;
    }
    /// Moves to the next entry. Returns an iterator at the previous position.
    Iterator operator++(int) {
      Iterator before = *this;
      ++position_;
      return before;
    }
    /// Compares positions. Both iterators must belong to the same node.
    bool operator==(const Iterator& other) const noexcept { return position_ == other.position_; }

   private:
    friend class TensorDict;
    Iterator(std::shared_ptr<detail::Node> node, std::size_t position)
        : node_(std::move(node)), position_(position) {}

    std::shared_ptr<detail::Node> node_;
    std::size_t position_ = 0;
  };

  /// Creates an empty node of kind tensordict and batch_size [].
  TensorDict();
  /// Creates an empty node with these properties.
  explicit TensorDict(NodeInfo info);
  /// Creates an empty node of kind dict, such as the root of a checkpoint. Python's load() returns
  /// it as a dict.
  static TensorDict dict();
  /// Creates a node of kind dict with these entries: dict({{"model", model}, {"epoch", 3}}).
  static TensorDict dict(std::initializer_list<Entry> entries);

  /// The properties of the node.
  const NodeInfo& info() const& TENFOLD_LIFETIMEBOUND;
  /// The properties of the node, to be changed.
  NodeInfo& info() & TENFOLD_LIFETIMEBOUND;
  /// Overload for temporaries, as in `for (auto& [k, v] : open("a.safetensors").info().metadata)`:
  /// returns the properties by value. To change them, store the handle in a variable first.
  const NodeInfo info() && { return std::as_const(*this).info(); }
  /// The type of the node.
  NodeKind kind() const { return info().kind; }
  /// The leading dimensions that all tensors except unbatched leaves have. Set for the kinds
  /// tensordict and tensorclass.
  const Shape& batch_size() const& TENFOLD_LIFETIMEBOUND { return info().batch_size; }
  /// Overload for temporaries: returns the batch size by value.
  Shape batch_size() && { return std::as_const(*this).info().batch_size; }

  /// The number of entries.
  std::size_t size() const;
  /// True if there are no entries.
  bool empty() const { return size() == 0; }
  /// The keys, in the order of the entries.
  std::vector<std::string> keys() const;

  /// An iterator at the first entry. Dereferencing reads an entry's metadata at the first access.
  Iterator begin() const { return {node_, 0}; }
  /// The end of the current entries.
  Iterator end() const { return {node_, size()}; }

  /// True if there is an entry of that name. For a bare root (NodeInfo::is_bare) that was opened,
  /// the stem of the file's name ("x" for "x.npy") also names the only entry, as in get().
  bool contains(std::string_view name) const;
  /// True if there is an entry at that path.
  bool contains(const KeyPath& path) const;
  /// Overload for keys in braces: contains({"model", "encoder.weight"}).
  bool contains(std::initializer_list<std::string> path) const { return contains(KeyPath(path)); }

  /// Returns the entry of that name; nullopt if there is none. Throws Error(unsupported) for an
  /// entry that cannot be read (NodeInfo::is_refused).
  std::optional<Item> find(std::string_view name) const;
  /// Returns the entry at that path; nullopt if there is none or the path is empty. Throws what
  /// find(name) throws.
  std::optional<Item> find(const KeyPath& path) const;
  /// Overload for keys in braces: find({"model", "encoder.weight"}).
  std::optional<Item> find(std::initializer_list<std::string> path) const {
    return find(KeyPath(path));
  }

  /// Returns the entry of that name. Throws Error(key_not_found) naming the source and near
  /// matches, Error(unsupported) for an entry that cannot be read (NodeInfo::is_refused).
  Item get(std::string_view name) const;
  /// Returns the entry at that path. Throws what get(name) throws, and Error(invalid_argument) for
  /// an empty path.
  Item get(const KeyPath& path) const;
  /// Overload for keys in braces: get({"model", "encoder.weight"}).
  Item get(std::initializer_list<std::string> path) const { return get(KeyPath(path)); }

  /// Returns the tensor of that name, mapped if it is on disk: at("model.encoder.weight"). Throws
  /// what get() and Leaf::tensor() throw, and Error(key_not_found) if the entry is not a tensor.
  Tensor at(std::string_view name) const;
  /// The tensor at a path of keys: at("model", "encoder.weight").
  template <class... Keys>
    requires(sizeof...(Keys) > 0)
  Tensor at(std::string_view key, const Keys&... rest) const {
    return tensor(KeyPath{std::string(key), std::string(rest)...});
  }
  /// The tensor at a path of keys: at({"model", "encoder.weight"}).
  Tensor at(std::initializer_list<std::string> path) const { return tensor(KeyPath(path)); }
  /// The tensor at that path. Throws what at(name) throws, and Error(invalid_argument) for an empty
  /// path.
  Tensor tensor(const KeyPath& path) const;

  /// The node of that name. A JSON object or array (a saved container without tensors) is returned
  /// as a new node of its members. Throws what get() throws, and Error(key_not_found) if the entry
  /// is a tensor, a JSON scalar or a NonTensorStack.
  TensorDict operator[](std::string_view name) const;
  /// The node at that path. Throws what operator[](name) throws, and Error(invalid_argument) for an
  /// empty path.
  TensorDict operator[](const KeyPath& path) const;
  /// The node at a path of keys: td[{"model", "encoder"}].
  TensorDict operator[](std::initializer_list<std::string> path) const {
    return (*this)[KeyPath(path)];
  }

  /// The JSON value of that name. Throws what get() throws, and Error(key_not_found) if the entry
  /// is not a JSON value.
  Value value(std::string_view name) const;
  /// The JSON value at that path. Throws what value(name) throws, and Error(invalid_argument) for
  /// an empty path.
  Value value(const KeyPath& path) const;
  /// The JSON value at a path of keys.
  Value value(std::initializer_list<std::string> path) const { return value(KeyPath(path)); }
  /// The JSON value of that name, converted to T: value<int>("epoch"). Also throws what Value::as()
  /// throws.
  template <class T>
  T value(std::string_view name) const {
    return value(name).template as<T>("key \"" + std::string(name) + "\"");
  }

  /// Adds an entry, or replaces the value of an existing key. The key may have dots. In a dict
  /// whose keys are all Python ints (NodeInfo::int_keys), a new key such as "7" or "-7" is an int
  /// in Python, too.
  void set(std::string_view key, Item item);
  /// Adds or replaces a tensor.
  void set(std::string_view key, Tensor tensor) { set(key, Item(Leaf(std::move(tensor)))); }
  /// Adds or replaces a JSON value: set("epoch", 3).
  void set(std::string_view key, Value value) { set(key, Item(NonTensor{std::move(value)})); }
  /// Adds or replaces a JSON value, given as any type that converts to Value.
  template <class T>
    requires(std::convertible_to<T, Value> && !std::convertible_to<T, Tensor> &&
             !std::same_as<std::remove_cvref_t<T>, Value>)
  void set(std::string_view key, T&& value) {
    set(key, Value(std::forward<T>(value)));
  }
  /// Adds or replaces a node.
  void set(std::string_view key, TensorDict node) { set(key, Item(std::move(node))); }

  /// Calls `visit` for each entry of this node, in the order of keys(). `visit` must not add
  /// entries to the node.
  void for_each(const std::function<void(const std::string& key, const Item& item)>& visit) const;

  /// Calls `visit` for each tensor and JSON value of this node and its descendants, depth first,
  /// with its path. Skips entries that cannot be read (NodeInfo::is_refused). Throws
  /// Error(invalid_argument) for more than 512 nested nodes.
  void for_each_leaf(const std::function<void(const KeyPath& path, const Item& item)>& visit) const;

  /// Returns row `index` of the first batch dimension as a new node. Maps each batched tensor, also
  /// in nested nodes, and takes a view of its row. Unbatched leaves and JSON values are kept; a
  /// NonTensorStack is replaced by its item of that row. For a lazy stack along dimension 0,
  /// returns the stacked node at that index. Throws Error(invalid_argument) if the node has no
  /// batch dimension, the index is out of range, or an entry has another number of rows. Throws
  /// Error(unsupported) for a sparse or jagged tensor or an opaque node.
  TensorDict select_row(std::int64_t index) const;
  /// Returns rows [begin, end) of the first batch dimension as a new node of the same kind. Treats
  /// entries as select_row() does, and throws the same errors.
  TensorDict narrow_rows(std::int64_t begin, std::int64_t end) const;

  /// Returns a deep copy: new nodes, whose tensors are contiguous copies on the heap. Tensors over
  /// exactly the same bytes, such as tied weights, share their copy. Throws what Leaf::tensor()
  /// throws, std::bad_alloc, and Error(invalid_argument) for more than 512 nested nodes.
  TensorDict clone() const;

  /// The path that this node was read from, for messages: "ckpt", "ckpt/model"; empty for a node
  /// created in memory.
  const std::string& where() const TENFOLD_LIFETIMEBOUND;

  /// True if both are handles of one node.
  bool same_node(const TensorDict& other) const noexcept { return node_ == other.node_; }

  /// Makes all mapped tensors of a tree that was opened "r+" durable (msync). For an archive, reads
  /// these tensors, updates their CRC-32s, and calls fdatasync. Has no effect on other trees.
  /// `monitor` observes the flush, except for .npy files.
  void flush(Monitor* monitor = nullptr) const;

 private:
  friend struct detail::Access;

  explicit TensorDict(std::shared_ptr<detail::Node> node) : node_(std::move(node)) {}

  std::shared_ptr<detail::Node> node_;
};

/// A key and its entry.
struct TensorDict::Entry {
  /// An entry of any kind.
  Entry(std::string its_key, Item its_item) : key(std::move(its_key)), item(std::move(its_item)) {}
  /// A tensor.
  Entry(std::string its_key, Tensor tensor)
      : key(std::move(its_key)), item(Leaf(std::move(tensor))) {}
  /// A JSON value, or a type that converts to one.
  template <class T>
    requires std::convertible_to<T, Value>
  Entry(std::string its_key, T&& value)
      : key(std::move(its_key)), item(NonTensor{Value(std::forward<T>(value))}) {}

  std::string key;  ///< the key
  Item item;        ///< a tensor, a JSON value or a node
};

/// Writes the kind of the node, then one line per key with the dtype and shape of a tensor or the
/// JSON value; nested nodes are indented. For large trees, writes the first entries only. Reads
/// metadata only.
TENFOLD_API std::ostream& operator<<(std::ostream& out, const TensorDict& tree);

/// Returns a value as a tree: a node unchanged; a list, tuple or dict of JSON values as a node of
/// its members; a tensor or any other JSON value as a bare root (NodeInfo::is_bare).
TENFOLD_API TensorDict bare_tree(TensorDict::Item value);

/// True if NodeInfo::is_bare is set and the root has the form described there. A root with several
/// entries, for example after set(), is an ordinary dict.
TENFOLD_API bool is_bare(const TensorDict& root);

/// Returns the value of a bare root; for any other tree, the tree itself.
TENFOLD_API TensorDict::Item bare_value(const TensorDict& root);

/// Returns the dict {stem of the file's name: value} for a bare root (NodeInfo::is_bare) that was
/// opened, as the command line shows it; otherwise the tree itself.
TENFOLD_API TensorDict named_by_file(const TensorDict& root);

/// Joins the keys with dots, as in the command line and globs: "model.encoder.weight".
TENFOLD_API std::string dotted(const KeyPath& path);

}  // namespace tenfold
