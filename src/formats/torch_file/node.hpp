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

/// What a container of a pickle holds, while it is filled.
struct Children {
  std::vector<Node::Entry> entries;
  KeyIndex positions;  ///< of a dict
  bool any_tensor = false;
  KeyTypes keys;                  ///< of a dict
  std::optional<Value> versions;  ///< NodeInfo::module_versions
  struct Pair {
    std::uint32_t key;
    std::uint32_t value;
    std::string problem;
  };
  std::vector<Pair> unreadable;  ///< of a dict: those whose keys cannot be read
};

/// The container: a node, or, without tensors below and unless `forced`, a NonTensor.
Node::Slot container_of(const Pickle& pickle, Children children, NodeKind kind, bool forced);

/// What the pickle would have called to make what `id` stands for: "module.Class"; the name of its
/// class for Python's own values.
std::string opaque_name(const Pickle& pickle, std::uint32_t id);

}  // namespace tenfold::detail::formats::torch_file
