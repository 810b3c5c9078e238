#pragma once

#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/torch_file/layout.hpp"

namespace tenfold::detail::formats::torch_file {

/// What a tree becomes in an archive of torch.save.
struct Plan {
  std::string pickle;                   ///< data.pkl
  std::vector<StorageLayout> storages;  ///< data/0, data/1, ...
};

/// dict, OrderedDict, list, tuple and JSON values become what they are in Python; a TensorDict and
/// a tensorclass become a dict, a lazy stack a list. Throws Error(unsupported), naming the key, for
/// nested tensors, integers of more than 255 bytes, keys that are not UTF-8 and for what is nested
/// deeper than readers go. Reads no tensor.
Plan make_plan(const TensorDict& tree);

/// The same of anything: a tensor, a JSON value or a node.
Plan make_object_plan(const TensorDict::Item& item);

}  // namespace tenfold::detail::formats::torch_file
