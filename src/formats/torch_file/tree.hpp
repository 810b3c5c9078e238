#pragma once

#include <memory>
#include <string>

#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"
#include "codecs/pickle/pickle.hpp"
#include "formats/torch_file/storages.hpp"

namespace tenfold::detail::formats::torch_file {

/// Builds the tree of the pickle in a file of torch.save. Does not import or call anything that the
/// pickle names. Objects of known types become:
///
///   dict, OrderedDict, list, tuple                 that container; a JSON value if it has neither
///                                                  tensors nor opaque nodes
///   defaultdict                                    a dict
///   Counter with tensors or opaque nodes           a dict
///   tensors, nested tensors, parameters, numpy     leaves
///   scalars and arrays
///   quantized tensors                              dicts of their parts
///   sparse and jagged tensors                      nodes of kind sparse
///   None, bool, int, float, str                    JSON values
///   bytes, bytearray, complex, set, frozenset,     extended scalars (Value::Special)
///   other Counter, torch.Size, torch.dtype,
///   torch.device, torch.layout, torch.qscheme
///
/// All other objects, and values that a tree does not support, become nodes of kind opaque. A dict
/// item, key and value together, also becomes such a node in three cases: its key is not a str,
/// int, float, bool, None or a tuple of these; its key is a str with lone surrogates; an earlier,
/// different key has the same string. A root container becomes a node even without tensors; a
/// tensor or another value at the root becomes a bare root (NodeInfo::is_bare).
///
/// `where` names the file. Throws Error(unsupported) if the nesting is too deep or shared objects
/// are repeated too often, and Error(corrupt) for invalid arguments of known calls, such as a
/// tensor that does not fit its storage.
TensorDict build_tree(const codecs::PickleGraph& graph, const std::shared_ptr<Storages>& storages,
                      const base::Where& where);

/// Converts the object of any pickle as build_tree() does, except that the root is not forced to be
/// a node: a container without tensors and opaque nodes becomes a JSON value, and a tensor a leaf.
TensorDict::Item build_object(const codecs::PickleGraph& graph,
                              const std::shared_ptr<Storages>& storages, const base::Where& where);

}  // namespace tenfold::detail::formats::torch_file
