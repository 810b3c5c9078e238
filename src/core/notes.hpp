#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

namespace tenfold {

/// What a format cannot say natively, as one small JSON document beside or inside it:
///
///   {"version": 1,
///    "nodes":   {"": {"kind": "dict"}, "optimizer/state": {"kind": "dict", "int_keys": true}},
///    "values":  {"optimizer/param_groups": {"tuples": ["/0/betas"], "int_keys": [...], "ordered": [...]}},
///    "aliases": {"head/weight": "embed/weight"},
///    "leaves":  {"shape": {"dtype": "float32", "shape": [3]}},
///    "files":   {"x.memmap": "%clash-0"},
///    "unbatched": ["table"],
///    "schema":  ...}
///
/// Paths are keys joined by "/", each key with "%" and "/" written as %25 and %2F; the root is "".
/// Members that say nothing are omitted, and an empty document is not written. A member that does
/// not fit the tree is ignored with a warning: another tool may have changed the tree.
struct Notes {
  struct NodeNote {
    NodeKind kind = NodeKind::tensordict;
    bool int_keys = false;
    bool operator==(const NodeNote&) const = default;
  };
  /// JSON pointers (RFC 6901) into a JSON value: which arrays are tuples, which objects had int
  /// keys, which were OrderedDicts.
  struct ValueNote {
    std::vector<std::string> tuples;
    std::vector<std::string> int_keys;
    std::vector<std::string> ordered;
    bool empty() const { return tuples.empty() && int_keys.empty() && ordered.empty(); }
    bool operator==(const ValueNote&) const = default;
  };
  struct LeafNote {
    DType dtype = DType::float32;
    Shape shape;
    bool operator==(const LeafNote&) const = default;
  };

  std::map<std::string, NodeNote, std::less<>> nodes;
  std::map<std::string, ValueNote, std::less<>> values;
  std::map<std::string, std::string, std::less<>> aliases;  ///< path -> path that holds the bytes
  std::map<std::string, LeafNote, std::less<>> leaves;      ///< entries that the format would lose
  std::map<std::string, std::string, std::less<>> files;    ///< path -> file or folder name
  std::vector<std::string> unbatched;
  std::optional<Value> schema;

  bool empty() const;
  /// One line of JSON.
  std::string to_json() const;
  /// Throws Error(corrupt) if it is no notes document, Error(unsupported) if its version is higher.
  static Notes from_json(std::string_view text, std::string_view where);
};

/// "model/encoder.weight": the path as the notes write it.
std::string note_path(const KeyPath& path);
std::string note_path_child(std::string_view parent, std::string_view key);

/// Kinds, value marks, aliases and unbatched leaves of a whole tree (not leaves, files, schema).
/// With `dict_is_default`, nodes of kind dict without int keys need no note (flat formats).
Notes collect_notes(const TensorDict& tree);

/// Sets what `notes` says of the node at `path` (kind, int_keys), if it fits what is there.
void apply_node_note(const Notes& notes, std::string_view path, NodeInfo& info);
/// Makes tuples, int-keyed and ordered objects of a JSON value again; false if the note is stale.
bool apply_value_note(const Notes& notes, std::string_view path, Value& value);

/// Warnings for people: what was ignored. The default prints nothing; Python makes UserWarnings.
using WarningHandler = void (*)(const std::string& message);
WarningHandler set_warning_handler(WarningHandler handler) noexcept;
void warn(const std::string& message);

}  // namespace tenfold
