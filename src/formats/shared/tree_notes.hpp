#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"

namespace tenfold::detail::formats {

// Notes for formats that store only nested dicts, lists and tuples of tensors and values: a JSON
// document with the properties of a tree that such a nesting cannot express:
//
//   {"version": 1,
//    "nodes": {"a/b": {"kind": "tensordict", "batch_size": [2], "names": ["time"], "class": "...",
//                      "device": "cpu"},
//              "s": {"kind": "lazy_stack", "stack_dim": 0, "stack_dim_name": "t"}},
//    "stacks": {"texts": 0},
//    "unbatched": ["a/table"],
//    "versions": {"model": {"": {"version": 1}}},
//    "schema": ..., "metadata": {"author": "me"}}
//
// "stacks" has the stack dimension of each stack of JSON values. "versions" has the `_metadata` of
// each module's state dict. core/notes/notes.hpp defines the paths. "nodes" lists only nodes of
// kind tensordict, tensorclass and lazy_stack. Empty members are omitted.

/// Where NodeInfo::module_versions is stored: in the tree notes, or in another part of the file or
/// folder.
enum class ModuleVersions : std::uint8_t { elsewhere, in_notes };

/// Returns the document, or "" if it would have no member except "version". Throws
/// Error(invalid_argument) like require_valid_info(), require_valid_keys() and walk(), and for
/// strings that are not UTF-8 (lone surrogates are allowed).
std::string tree_notes_of(const TensorDict& tree,
                          ModuleVersions versions = ModuleVersions::elsewhere);

/// Applies the document to `tree`, which was read as plain dicts, lists and tuples. Ignores members
/// that do not fit the tree, with a warning: another tool may have changed the file. Throws
/// Error(corrupt) if `json` is not such a document, Error(unsupported) if a newer version of
/// tenfold wrote it. `where` names the document.
void apply_tree_notes(std::string_view json, const base::Where& where, TensorDict& tree);

}  // namespace tenfold::detail::formats
