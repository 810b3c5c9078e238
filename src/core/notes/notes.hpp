#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

#include "base/fail.hpp"

namespace tenfold {

/// What a format cannot say natively, as one small JSON document beside or inside it:
///
///   {"version": 1,
///    "nodes":   {"": {"kind": "dict"}, "optimizer/state": {"kind": "dict", "int_keys": true},
///                "thresholds": {"kind": "dict", "keys": {"0.5": 0.5, "None": null}},
///                "adjacency": {"kind": "sparse", "layout": "sparse_coo", "shape": [3, 4],
///                              "coalesced": true},
///                "model": {"kind": "ordered_dict", "versions": {"": {"version": 1}}}},
///                (of a value by itself: "": {"kind": "dict", "bare": true})
///    "values":  {"optimizer/param_groups": {"tuples": ["/0/betas"], "int_keys": [...],
///                                           "keys": {"/1": {"(1, 2)": [1, 2]}},
///                                           "ordered": [...], "types": {"/0/seen": "set"}}},
///    "aliases": {"head/weight": "embed/weight"},
///    "leaves":  {"shape": {"dtype": "float32", "shape": [3]}},
///    "files":   {"x.memmap": "%clash-0"},
///    "unbatched": ["table"],
///    "schema":  ...,
///    "metadata": {"author": "me"}}
///
/// Paths are keys joined by "/", each key with "%" and "/" written as %25 and %2F, an empty key as
/// "%"; the root is "". Members that say nothing are omitted, and an empty document is not
/// written. A member that does not fit the tree is ignored with a warning: another tool may have
/// changed the tree.
struct Notes {
  struct NodeNote {
    NodeKind kind = NodeKind::tensordict;
    bool int_keys = false;
    TypedKeys typed_keys{};
    std::string layout{};  ///< this and the next two: of a sparse tensor, as in NodeInfo
    Shape dense_shape{};
    bool is_coalesced = false;
    std::optional<Value> module_versions{};
    bool is_bare = false;  ///< of the root, as in NodeInfo
    bool operator==(const NodeNote&) const = default;
  };
  /// JSON pointers (RFC 6901) into a JSON value: which arrays are tuples, which objects had int
  /// or other keys, which were OrderedDicts, and which values are a Special.
  struct ValueNote {
    std::vector<std::string> tuples;
    std::vector<std::string> int_keys;
    std::vector<std::string> ordered;
    std::map<std::string, Value::Special::Type> types{};
    std::map<std::string, TypedKeys> typed_keys{};
    bool empty() const {
      return tuples.empty() && int_keys.empty() && ordered.empty() && types.empty() &&
             typed_keys.empty();
    }
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
  std::map<std::string, std::string> metadata;  ///< of the root, as NodeInfo::metadata

  bool operator==(const Notes&) const = default;

  bool empty() const;
  /// One line of JSON.
  std::string to_json() const;
  /// Afterwards every path is well formed, every file name is one plain path component (it leads
  /// out of no folder), every shape has a size that fits 63 bits, and no alias has an alias as its
  /// target. Members of unknown name are ignored with a warning. Throws Error(corrupt) if it is no
  /// notes document, Error(unsupported) if its version is higher.
  static Notes from_json(std::string_view text, const base::Where& where);
};

/// "model/encoder.weight": the path as the notes write it.
std::string note_path(const KeyPath& path);
std::string note_path_child(std::string_view parent, std::string_view key);
/// The keys of a path of the notes; nothing if it is not well formed.
std::optional<KeyPath> keys_of_note_path(std::string_view path);

/// Kinds, value marks, aliases and unbatched leaves of a whole tree (not leaves, files, schema).
/// Of leaves over the same bytes the first in for_each_leaf order holds them. Reads no tensor.
/// Without `of_leaves`, for formats that say these themselves: no aliases, no unbatched leaves.
Notes collect_notes(const TensorDict& tree, bool of_leaves = true);

/// Adds what the notes say of a JSON value at `path`: where its tuples, int-keyed and ordered
/// objects and its special values are.
void collect_value_note(std::string_view path, const Value& value, Notes& notes);

/// Sets what `notes` says of the node at `path` (kind, keys), if it fits what is there; otherwise
/// it warns. With `keys`, those of the node, a list or tuple must have the keys "0", "1", ...,
/// int_keys must be integers as Python writes them, and typed_keys be there.
void apply_node_note(const Notes& notes, std::string_view path, NodeInfo& info);
void apply_node_note(const Notes& notes, std::string_view path, std::span<const std::string> keys,
                     NodeInfo& info);

/// Makes tuples, int-keyed and ordered objects and special values of a JSON value again. False,
/// with a warning and the value untouched, if the note is stale.
bool apply_value_note(const Notes& notes, std::string_view path, Value& value);

/// Hands a warning to the handler. Thread safety: may be called from any thread.
void warn(const std::string& message);

}  // namespace tenfold
