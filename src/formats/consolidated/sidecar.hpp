#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/value.hpp>

#include "codecs/json/json.hpp"
#include "core/notes/notes.hpp"
#include "core/tree/node.hpp"

namespace tenfold::detail::formats::consolidated {

/// Additions of tenfold to the document of a consolidated file, in the root's member "size", which
/// tensordict ignores:
///
///   "size": ["tenfold", {"notes": "{...}", "order": {"a/b": [2, 0, 1]}, "tenfold_xxh3": "..."}]
///
/// The document lists the values of a node, then its tensors, then its child nodes. If the entries
/// of the node had a different order, `order` has, for each entry in that order, its position in
/// the document. Empty members are omitted.
struct Sidecar {
  Notes notes;
  base::Where notes_where;                                             ///< for messages
  std::map<std::string, std::vector<std::size_t>, std::less<>> order;  ///< by node path
  std::string checksums;                                               ///< see json_checksums.hpp

  bool empty() const { return notes.empty() && order.empty() && checksums.empty(); }
};

/// Writes the value of the member "size" of the root.
void write_sidecar(const Sidecar& extra, codecs::JsonWriter& json);

/// Parses the value of the member "size" of the root. `where` names the file. Returns an empty
/// sidecar if the value is not in the form that tenfold writes. Ignores members of the wrong type,
/// and orders that are not permutations, with a warning. Throws like Notes::from_json().
Sidecar read_sidecar(const Value& size, const std::string& where);

/// Restores the saved order of the entries of `node`, and applies the notes: the kind of the node,
/// its values and, for the root, schema and metadata. `path` is the path of the node as in notes
/// (core/notes/notes.hpp). Ignores members that do not match the node, with a warning.
void apply_extra(const Sidecar& extra, std::string_view path, Node& node);

}  // namespace tenfold::detail::formats::consolidated
