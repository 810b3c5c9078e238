#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/mapped_dict.hpp>

namespace tenfold {

// A state index is a MappedDict inside a larger tree, for the keys of a state mapper. The schema of
// the dictionary follows from the kind of its keys and the names and dtypes of its columns, so it
// is not stored.

/// A column of a state index, in addition to the keys.
struct StateIndexColumn {
  std::string name;
  Tensor values;  ///< [number of keys]
};

/// Formats the key at a position, for messages.
using ShownKey = std::function<std::string(std::size_t)>;

/// Builds the node of a dictionary in memory. Throws Error(invalid_argument) for a duplicate key.
/// `shown`, if given, formats the key in the message.
TensorDict make_state_index(const DictKeys& keys, DictKeyType type,
                            const std::vector<StateIndexColumn>& columns,
                            const ShownKey& shown = {});

/// The state index with the keys of `dict` in the same rows, without other columns. Throws
/// Error(unsupported) if `dict` has superseded rows: call compact() first.
TensorDict state_index_of(const MappedDict& dict);

/// Opens the dictionary in `tree`, a node of make_state_index(), and does not change `tree`. Throws
/// Error(corrupt) if the node is not a dictionary, or if one of `columns` is missing or has another
/// dtype.
MappedDict open_state_index(const TensorDict& tree, DictKeyType type,
                            const std::vector<std::pair<std::string, DType>>& columns);

}  // namespace tenfold
