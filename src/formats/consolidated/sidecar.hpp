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
/// The document lists the values of a node, then its tensors, then its nodes. If the original order
/// of the entries was different, `order` lists, for each entry in the original order, its position
/// in the order of the document. Empty members are omitted.
struct Sidecar {
  Notes notes;
  base::Where notes_where;                                             ///< for messages
  std::map<std::string, std::vector<std::size_t>, std::less<>> order;  ///< by node path
  std::string checksums;                                               ///< see json_checksums.hpp

  bool empty() const { return notes.empty() && order.empty() && checksums.empty(); }
};

/// Writes the member's value.
void write_sidecar(const Sidecar& extra, codecs::JsonWriter& json);

/// Parses the root's "size". Returns an empty sidecar if the value is not in the form that tenfold
/// writes. Ignores members of the wrong type, and orders that are not permutations, with a warning.
/// Throws like Notes::from_json().
Sidecar read_sidecar(const Value& size, const std::string& where);

/// Restores the saved order of a node's entries, and applies the notes: the node's kind, its values
/// and, for the root, schema and metadata. Ignores members that do not match the node, with a
/// warning.
void apply_extra(const Sidecar& extra, std::string_view path, Node& node);

}  // namespace tenfold::detail::formats::consolidated
