#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "core/tree/leaf_source.hpp"
#include "formats/consolidated/sidecar.hpp"

namespace tenfold::detail::formats::consolidated {

/// The location of a tensor's bytes in a consolidated file.
struct TensorRange {
  DType dtype = DType::float32;
  std::uint64_t begin = 0;       ///< offset in the file
  std::uint64_t size_bytes = 0;  ///< of the tensor, without padding
  std::uint64_t stop = 0;        ///< offset of the end in the file, including padding
};

/// The source of the leaves of a file. While the tree is built, `ranges` gets the location of each
/// leaf.
class Leaves : public LeafSource {
 public:
  std::vector<TensorRange> ranges;  ///< indexed by the position of the leaf
};

/// Prefixes of the names of a jagged tensor's components.
inline constexpr std::string_view kJaggedValues = "<NJT_VALUES>";
inline constexpr std::string_view kJaggedLengths = "<NJT_LENGTHS>";
inline constexpr std::string_view kJaggedOffsets = "<NJT_OFFSETS>";

/// True for the names of the members of a node that are not child nodes: "cls", "non_tensors",
/// "leaves", "cls_metadata" and "size". No child node can have such a key.
bool is_reserved_member(std::string_view key) noexcept;

/// True if the value of "cls" names a tensorclass: "<class 'module.Class'>".
bool is_tensorclass(std::string_view cls) noexcept;

/// The tree in the JSON document of a consolidated file. A node has this form:
///
///   {"cls": "TensorDict",                       or LazyStackedTensorDict, NonTensorStack,
///                                               or "<class 'm.C'>" for a tensorclass
///    "non_tensors": {key: [json, batch_size, device]},
///    "leaves": {key: ["torch.float32", shape, start, stop, padding],
///               and for a jagged tensor, consecutively, its components "<NJT_VALUES>key",
///               "<NJT_LENGTHS>key" if it has lengths, and "<NJT_OFFSETS>key", whose sixth item
///               is the ragged dimension},
///    "cls_metadata": {"device", "names", "batch_size", "is_locked"}; for the two stack classes
///                    {"stack_dim", "stack_dim_name", "is_locked"},
///    "size": only in the root, see sidecar.hpp,
///    any other key: a node}
struct Tree {
  TensorDict tree;
  Sidecar extra;        ///< already applied to the tree
  bool locked = false;  ///< the tree was locked when it was saved
};

/// Builds the tree of the document `json`. `leaves` receives the location of each tensor: a range
/// within the first `data_bytes` bytes of the file, as long as the tensor and its padding. Two
/// ranges are equal or disjoint. `where` names the file. Throws Error(corrupt) for an invalid
/// document, and Error(unsupported) for unknown classes and dtypes, a NonTensorStack as the root, a
/// tensorclass around a lazy stack, values whose copies for the rows of stacks need more than
/// kMaxRepeatedBytes (value_stacks.hpp), and notes of a newer version. Errors about a node name the
/// node.
Tree build_tree(std::string_view json, std::uint64_t data_bytes,
                const std::shared_ptr<Leaves>& leaves, const std::string& where);

}  // namespace tenfold::detail::formats::consolidated
