#pragma once

#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/torch_file/layout.hpp"

namespace tenfold {

/// What a tree becomes in an archive of torch.save.
struct TorchFilePlan {
  std::string pickle;                        ///< data.pkl
  std::vector<TorchStorageLayout> storages;  ///< data/0, data/1, ...
};

/// dict, OrderedDict, list, tuple and JSON values become what they are in Python; a TensorDict and
/// a tensorclass become a dict, a lazy stack a list. Throws Error(unsupported), naming the key, for
/// nested tensors, integers of more than 255 bytes, keys that are not UTF-8 and for what is nested
/// deeper than readers go. Reads no tensor.
TorchFilePlan plan_torch_file(const TensorDict& tree);

/// The same of anything: a tensor, a JSON value or a node.
TorchFilePlan plan_torch_object(const TensorDict::Item& item);

}  // namespace tenfold
