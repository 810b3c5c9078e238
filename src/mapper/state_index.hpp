#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tenfold/mapped_dict.hpp>

namespace tenfold {

/// A MappedDict as a part of a larger tree: the keys of a state mapper. What a dictionary's schema
/// says follows from the kind of its keys and the names of its columns, so nothing else is stored.
struct StateIndexColumn {
  std::string name;
  Tensor values;  ///< [number of keys]
};

/// The node of a dictionary in memory. Throws Error(invalid_argument) naming a key that comes
/// twice.
TensorDict make_state_index(const DictKeys& keys, DictKeyType type,
                            const std::vector<StateIndexColumn>& columns);

/// The same keys under the same rows, without the values. Throws Error(unsupported) if some rows
/// are no keys' any more: compact() it first.
TensorDict state_index_of(const MappedDict& dict);

/// The dictionary of such a node. Throws Error(corrupt) if it is none, or its columns are others.
MappedDict open_state_index(TensorDict node, DictKeyType type,
                            const std::vector<std::pair<std::string, DType>>& columns);

}  // namespace tenfold
