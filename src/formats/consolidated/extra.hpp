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

/// What tenfold adds to the document of a consolidated file, in the root's member "size", which
/// tensordict reads over:
///
///   "size": ["tenfold", {"notes": "{...}", "order": {"a/b": [2, 0, 1]}, "tenfold_xxh3": "..."}]
///
/// The document lists the values of a node, then its tensors, then its nodes; `order` tells, where
/// it is another one, which of them comes first, second, ... Members that say nothing are omitted.
struct Extra {
  Notes notes;
  std::map<std::string, std::vector<std::size_t>, std::less<>> order;  ///< by path of the notes
  std::string checksums;                                               ///< json_checksums.hpp

  bool empty() const { return notes.empty() && order.empty() && checksums.empty(); }
};

/// Writes the member's value.
void write_extra(const Extra& extra, codecs::JsonWriter& json);

/// What the root's "size" says; nothing if another tool put something else there. What does not
/// have the right type is ignored with a warning. Throws as Notes::from_json.
Extra read_extra(const Value& size, const std::string& where);

/// Puts the entries of a node into the order that was saved, and sets its kind, its values and its
/// unbatched leaves as the notes say. What does not fit the node is ignored with a warning.
void apply_extra(const Extra& extra, std::string_view path, Node& node);

}  // namespace tenfold::detail::formats::consolidated
