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

/// The notes document: a small JSON document, in a sidecar or inside the file, that records what
/// the format cannot express:
///
///   {"version": 1,
///    "nodes":   {"": {"kind": "dict"}, "optimizer/state": {"kind": "dict", "int_keys": true},
///                "thresholds": {"kind": "dict", "keys": {"0.5": 0.5, "None": null}},
///                "adjacency": {"kind": "sparse", "layout": "sparse_coo", "shape": [3, 4],
///                              "coalesced": true},
///                "model": {"kind": "ordered_dict", "versions": {"": {"version": 1}}}},
///                (for a bare root: "": {"kind": "dict", "bare": true})
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
/// "%"; the root is "". Empty members are omitted, and an empty document is not written. A note
/// that contradicts the tree is ignored with a warning: another tool may have changed the tree.
/// Notes of nodes and values that the tree lacks are ignored without a warning.
struct Notes {
  struct NodeNote {
    NodeKind kind = NodeKind::tensordict;
    bool int_keys = false;
    TypedKeys typed_keys{};
    std::string layout{};  ///< this and the next two describe a sparse tensor, as in NodeInfo
    Shape dense_shape{};
    bool is_coalesced = false;
    std::optional<Value> module_versions{};
    bool is_bare = false;  ///< for the root only, as in NodeInfo
    bool operator==(const NodeNote&) const = default;
  };
  /// The types in a JSON value that JSON cannot express, by JSON pointer (RFC 6901): arrays that
  /// are tuples, objects whose keys are ints, OrderedDicts, extended scalars (Value::Special), and
  /// objects with other keys that are not strings.
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
  std::map<std::string, std::string, std::less<>> aliases;  ///< path -> path of the leaf that is
                                                            ///< stored
  std::map<std::string, LeafNote, std::less<>> leaves;      ///< entries that the format cannot
                                                            ///< represent
  std::map<std::string, std::string, std::less<>> files;    ///< path -> file or folder name
  std::vector<std::string> unbatched;                       ///< paths of leaves
  std::optional<Value> schema;
  std::map<std::string, std::string> metadata;  ///< for the root only, as NodeInfo::metadata

  bool operator==(const Notes&) const = default;

  bool empty() const;
  /// The document as one line of JSON.
  std::string to_json() const;
  /// Parses and checks a document. In the result, every path is well formed, every file name is one
  /// path component (which cannot lead out of the folder), and no target of an alias is an alias.
  /// The number of bytes of a leaf and the number of elements of a sparse tensor fit 63 bits; the
  /// size of a jagged tensor is not checked. Unknown top-level members and unknown types of
  /// extended scalars are ignored with a warning. Throws Error(corrupt) if the text is not a notes
  /// document, Error(unsupported) if its version is higher than this library supports.
  static Notes from_json(std::string_view text, const base::Where& where);
};

/// True for the kinds of nodes that have a note. The other kinds are stored in meta.json, or in the
/// equivalent document of another format, except opaque nodes, which cannot be saved.
bool has_note(NodeKind kind) noexcept;

/// Joins the keys to a path of the notes: "model/encoder.weight".
std::string note_path(const KeyPath& path);
std::string note_path_child(std::string_view parent, std::string_view key);
/// Splits a path of the notes into its keys; nullopt if it is not well formed.
std::optional<KeyPath> keys_of_note_path(std::string_view path);

/// Throws Error(invalid_argument), naming the entry at `path`, if node.info() has a value that
/// would not survive a save and a load:
/// - int_keys or typed_keys on a node that is not a dict, or both of them on a dict
/// - typed_keys for which are_valid() is false
/// - a device for which is_torch_device() is false
/// - names whose number is not the number of batch dimensions
/// - a name, stack_dim_name or class_name that is not UTF-8 (encoded lone surrogates are allowed)
/// - a negative length in batch_size
/// - a stack_dim of a lazy stack that is not from 0 to kMaxStackDim
void require_valid_info(std::string_view path, const TensorDict& node);
/// Throws Error(invalid_argument), naming the entry at `path`, if a dict in the JSON value has both
/// int_keys and typed_keys, or typed_keys for which are_valid() is false.
void require_valid_keys(std::string_view path, const Value& value);

/// Returns the `nodes`, `values`, `aliases` and `unbatched` of a whole tree; the other members are
/// empty. Among leaves over the same bytes, the first in the order of walk() is the alias target.
/// Reads no tensor. If `of_leaves` is false, `aliases` and `unbatched` are empty, too, for formats
/// that store them natively. Throws what walk(), require_valid_info() and require_valid_keys()
/// throw.
Notes collect_notes(const TensorDict& tree, bool of_leaves = true);

/// Adds the note of the JSON value at `path`: the locations of its tuples, its extended scalars,
/// its ordered objects, and its objects with keys that are not strings.
void collect_value_note(std::string_view path, const Value& value, Notes& notes);

/// Applies the note of the node at `path`, if there is one, to `info`. If the note does not fit the
/// node, only warns, with a message that starts with `where`. The note fits if the kind of `info`
/// is tensordict or the kind in the note. If `keys` (the keys of the node) is given, it must fit,
/// too:
/// - list or tuple: "0", "1", ...
/// - sparse tensor: the component names
/// - bare root: only "value"
/// - note with int_keys: each key is an integer as str(int) writes it
/// - note with typed_keys: `keys` includes the strings of all typed keys
void apply_node_note(const Notes& notes, std::string_view path, NodeInfo& info,
                     const base::Where& where);
void apply_node_note(const Notes& notes, std::string_view path, std::span<const std::string> keys,
                     NodeInfo& info, const base::Where& where);

/// Restores tuples, types of keys, ordered objects and extended scalars in the JSON value at
/// `path`. Returns true, even if there is no note for `path`. If the note does not fit the value,
/// leaves the value unchanged, warns with a message that starts with `where`, and returns false.
bool apply_value_note(const Notes& notes, std::string_view path, Value& value,
                      const base::Where& where);

/// Passes a warning to the handler of set_warning_handler(); does nothing if that is null. Thread
/// safety: may be called from any thread.
void warn(const std::string& message);

}  // namespace tenfold
