#pragma once

#include <memory>
#include <string>

#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"
#include "codecs/pickle/pickle.hpp"
#include "formats/torch_file/storages.hpp"

namespace tenfold::detail::formats::torch_file {

/// The tree that the pickle of a file of torch.save stands for. Nothing is imported or called; what
/// is known by name becomes:
///
///   dict, OrderedDict, defaultdict, Counter, list, tuple, torch.Size   containers of that kind
///   None, bool, int, float, str                                        JSON values
///   tensors, parameters, numpy scalars and arrays                      leaves
///   torch.dtype, torch.device, torch.layout, torch.qscheme             text, as str() gives it
///
/// A root that is a tensor or a JSON value is a bare root. `where` names the file. Everything else,
/// dicts' items of other keys than str, numbers, None and tuples of these, and values that a tree
/// cannot hold become nodes of kind opaque. Throws Error(unsupported) for what nests too
/// deeply or repeats too often, Error(corrupt) for tensors that do not fit their storages.
TensorDict build_tree(const codecs::PickleGraph& graph, const std::shared_ptr<Storages>& storages,
                      const base::Where& where);

/// The same for a pickle of anything: a plain value is a JSON value, a tensor a leaf. Throws
/// Error(unsupported) for what is or holds an opaque node.
TensorDict::Item build_object(const codecs::PickleGraph& graph,
                              const std::shared_ptr<Storages>& storages, const base::Where& where);

}  // namespace tenfold::detail::formats::torch_file
