#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "core/tree/leaf_source.hpp"
#include "formats/consolidated/extra.hpp"

namespace tenfold::detail::formats::consolidated {

/// Where the bytes of one tensor lie in a consolidated file.
struct StoredRange {
  DType dtype = DType::float32;
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;  ///< of the tensor, without the padding
  std::uint64_t stop = 0;        ///< with it
};

/// A source of leaves that learns where they lie while the tree is built.
class Leaves : public LeafSource {
 public:
  std::vector<StoredRange> ranges;  ///< by the position of the leaf
};

/// What the names of the parts of a jagged tensor begin with.
inline constexpr std::string_view kJaggedValues = "<NJT_VALUES>";
inline constexpr std::string_view kJaggedLengths = "<NJT_LENGTHS>";
inline constexpr std::string_view kJaggedOffsets = "<NJT_OFFSETS>";

/// True for the keys that a node's own description uses: no node can have them.
bool is_reserved_member(std::string_view key) noexcept;

/// The tree that the JSON document of a consolidated file describes. A node of it:
///
///   {"cls": "TensorDict",                       or LazyStackedTensorDict, NonTensorStack,
///                                               "<class 'm.C'>" of a tensorclass
///    "non_tensors": {key: [json, batch_size, device]},
///    "leaves": {key: ["torch.float32", shape, start, stop, padding],
///               and for a jagged tensor, after each other, its parts "<NJT_VALUES>key",
///               "<NJT_LENGTHS>key" if it has lengths, and "<NJT_OFFSETS>key", of which a sixth
///               item is the dimension whose lengths differ},
///    "cls_metadata": {"device", "names", "batch_size", "is_locked"}, or "stack_dim" and
///                    "stack_dim_name" of the two stacks,
///    "size": what consolidated_extra.hpp says, any other key: a node}
///
/// Afterwards each range lies within `data_bytes`, holds exactly its tensor and its padding, and
/// equals or avoids every other. Throws Error(corrupt) naming node and member, Error(unsupported)
/// for unknown classes and dtypes. `where` names the file.
struct Tree {
  TensorDict tree;
  Extra extra;          ///< already applied to the tree
  bool locked = false;  ///< the program that saved it had locked it
};
Tree build_tree(std::string_view json, std::uint64_t data_bytes,
                const std::shared_ptr<Leaves>& leaves, const std::string& where);

}  // namespace tenfold::detail::formats::consolidated
