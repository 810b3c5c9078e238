#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/fail.hpp"
#include "common.hpp"
#include "core/tree/typed_keys.hpp"

namespace tenfold::python {

/// Converts Python's nested containers, tensors and JSON values to a tree. Passes objects of other
/// types to `tenfold._interop.objects.simplify`, which returns one of:
///
///   ("again", object)                 another object to convert instead
///   ("tensor", torch_tensor)          a dense torch tensor in main memory
///   ("memory", address, dtype, shape, strides, writable, owner) a dense array in main memory
///   ("capsule", dlpack_capsule)       a dense array in main memory
///   ("nested", values, sizes)         a strided nested tensor: two tensors
///   ("unbatched", object)             a tensor exempt from the batch size
///   ("value", object)                 a JSON value, even if it is a list
///   ("special", name, text, items)    an extended scalar (tenfold/_interop/objects.py)
///   ("stack", list, stack_dim, device) tensordict's NonTensorStack
///   ("node", info, keys, values)      a node; `info`: a NodeInfo
///   ("native", handle, overrides)     an opened node with some entries replaced
///   ("item", handle)                  an entry of an opened node
///   ("refused", expected, found, remedy) parts of the error for an object that cannot be stored
class TreeBuilder {
 public:
  /// `path`: the target path, for messages; may be empty.
  explicit TreeBuilder(std::string path);

  /// Converts a container or node to a tree. If `bare` is true, also converts a tensor or JSON
  /// value that is in no container, to a tree with a bare root (NodeInfo::is_bare). Throws
  /// Error(invalid_argument) for any other object. If a nested object cannot be stored, throws
  /// Error(unsupported) with its key.
  TensorDict root(nb::handle object, bool bare);

 private:
  using Converted = std::variant<Value, TensorDict::Item>;
  struct Children;
  class Entered;

  Converted convert(nb::handle object);
  Converted convert_other(nb::handle object);
  Converted convert_dict(nb::handle dict, bool ordered);
  std::string key_of(nb::handle key, KeyTypes& keys) const;
  void set_keys(const Children& children, KeyTypes keys, NodeInfo& info) const;
  Converted convert_sequence(nb::handle sequence, bool is_tuple);
  Converted finish(Children children, NodeInfo info);
  TensorDict node(nb::handle object, nb::handle info, nb::handle keys, nb::handle values);
  TensorDict native(nb::handle object, nb::handle handle, nb::handle overrides);
  static void put(TensorDict& node, std::string key, Converted converted);
  static void put_all(TensorDict& node, Children& children);
  Leaf nested(nb::handle values, nb::handle sizes);
  Leaf leaf(nb::handle object);
  Value value(nb::handle object);
  std::optional<Value> module_versions(nb::handle dict);
  Value special(nb::handle name, nb::handle description, nb::handle items);
  void add(Children& children, std::string key, nb::handle object);

  /// `<path>: key "a.b"`, for messages about the object that is being converted.
  base::Where where() const;
  Error refuse(ErrorCode code) const { return base::fail(code, where()); }

  std::string path_;
  KeyPath keys_;
  std::vector<PyObject*> open_containers_;
  /// State that simplify() keeps between the objects of one conversion.
  nb::dict memo_;
  /// True for the root, which becomes a node even without tensors; false for nested containers.
  bool force_node_ = false;
};

/// The elements of a dense torch tensor of any class and device. They are shared with the tensor,
/// or copied if they are not in main memory or the tensor is a lazy conjugate or negative view.
/// nullopt for sparse, jagged and nested tensors and other objects. Throws if the tensor's storage
/// is missing (as on the meta device), or if the tensor is quantized or has an unsupported dtype.
std::optional<Tensor> tensor_of_any_torch(nb::handle object);

/// Convert from and to the class NodeInfo of _interop/node_info.py.
NodeInfo node_info_from(nb::handle info);
nb::object to_python(const NodeInfo& info);

/// Converts a key that is not a string: None, bool, int, float, or a tuple of these or of strings.
/// Empty for any other key. `depth`: the number of tuples that contain the key.
std::optional<Value> typed_key(nb::handle key, std::size_t depth = 0);

}  // namespace tenfold::python
