#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

#include "core/tree/key_index.hpp"
#include "core/tree/node.hpp"
#include "core/tree/typed_keys.hpp"
#include "formats/torch_file/pickle.hpp"

namespace tenfold::detail::formats::torch_file {

/// The content of a container in a pickle, while the container is converted.
struct Children {
  std::vector<Node::Entry> entries;
  KeyIndex positions;             ///< for dicts
  bool any_tensor = false;        ///< true if an entry is a tensor or a node
  KeyTypes keys;                  ///< for dicts
  std::optional<Value> versions;  ///< NodeInfo::module_versions
  /// A pair of a dict that cannot be an entry. `key` and `value` are nodes of the pickle.
  struct Pair {
    std::uint32_t key;
    std::uint32_t value;
    std::string problem;  ///< why it cannot be an entry
  };
  /// For dicts: pairs whose keys are not supported, or have the same string as an earlier,
  /// different key.
  std::vector<Pair> unreadable;
};

/// Builds a container: a node if it has tensors, nodes or `versions` (which a NonTensor cannot
/// store), if its kind is sparse or opaque, or if `forced` is set; otherwise a NonTensor. Throws
/// Error(unsupported) if keys of a dict are equal.
Node::Slot container_of(const Pickle& pickle, Children children, NodeKind kind, bool forced);

/// Returns the name "module.Class" of the callable that would create the object `id`. For a value
/// of a built-in type of Python, returns the name of the type. For other objects without a
/// callable, returns a description, such as "persistent id".
std::string opaque_name(const Pickle& pickle, std::uint32_t id);

}  // namespace tenfold::detail::formats::torch_file
