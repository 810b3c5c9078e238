#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tenfold/tensor.hpp>
#include <tenfold/value.hpp>

namespace tenfold::detail::formats::snapshot {

inline constexpr std::string_view kMetadataName = ".snapshot_metadata";
inline constexpr std::string_view kNotesName = "%notes.json";
/// Maximum size of `.snapshot_metadata`; a larger file is refused before it is read. torchsnapshot
/// writes about 500 bytes per entry.
inline constexpr std::uint64_t kMaxMetadataBytes = std::uint64_t{1} << 30;

/// One tensor in the file `.snapshot_metadata`.
struct TensorEntry {
  std::string location;    ///< path of its file, relative to the folder
  std::string serializer;  ///< "buffer_protocol", "torch_save", or another, which is not supported
  std::string dtype;       ///< "torch.float32"
  Shape shape;
  bool replicated = false;
  /// The bytes [first, second) of the file. nullopt means the whole file.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> byte_range;
};

/// A chunk of a chunked tensor, or a shard of a sharded tensor or DTensor.
struct Piece {
  Shape offsets;
  Shape sizes;
  TensorEntry tensor;
};

/// A key of a dict, a str or int in Python.
struct Key {
  std::string text;
  bool is_int = false;
};

/// The type of an entry, as torchsnapshot calls it.
enum class EntryType : std::uint8_t {
  tensor,
  chunked_tensor,
  sharded_tensor,
  dtensor,
  object,
  list,
  dict,
  ordered_dict,
  int_,
  str,
  bool_,
  bytes,
  float_,
  unknown,  ///< its type is in Entry::obj_type
};

/// An entry of the manifest. The comments name the types that use a member.
struct Entry {
  EntryType type = EntryType::unknown;
  TensorEntry tensor;         ///< tensor: all members; chunked_tensor: dtype, shape, replicated;
                              ///< object: location, serializer, replicated; int_ to float_:
                              ///< replicated
  std::vector<Piece> pieces;  ///< chunked_tensor, sharded_tensor, dtensor
  std::vector<Key> keys;      ///< dict, ordered_dict
  Value mesh;                 ///< dtensor: nested lists of ranks, as in torchsnapshot
  Value dim_map;              ///< dtensor: the mesh dimensions that shard each dimension, or [-1]
  std::string value;          ///< int_ to float_: as text; floats and bytes in base64
  std::string readable;       ///< float_: the number in decimal, for people
  std::string obj_type;       ///< object: its class ("builtins.tuple"); unknown: the type's name
};

/// The index of a snapshot: `{"version", "world_size", "manifest": {path: entry}}`. A path is
/// `<rank>/<app_state key>/<key>/...`, each key with "%" and "/" written as %25 and %2F. An entry
/// with the path `<rank>` is app_state itself.
struct Manifest {
  std::string version = "0.1.0";
  std::int64_t world_size = 1;
  std::vector<std::pair<std::string, Entry>> entries;

  void add(std::string path, Entry entry);
  const Entry* find(std::string_view path) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> index_;
};

/// True for a list, dict or ordered_dict.
bool is_container(EntryType type);
/// True for a sharded_tensor or dtensor.
bool is_sharded(EntryType type);
/// Returns the name that a manifest has for the type int_, str, bool_, bytes or float_: "int", ...
std::string_view primitive_name(EntryType type);

/// Escapes a key for a path of the manifest: "%" and "/" become "%25" and "%2F".
std::string escape(std::string_view key);

/// Parses `.snapshot_metadata`: JSON, or the YAML that versions of torchsnapshot before 0.1 wrote.
/// In the result, every entry has the members of its type (byte_range, mesh, dim_map and readable
/// may be missing), lengths are not negative, and every location is inside the folder. If a tensor
/// of a known dtype is stored raw and has a byte range, the range has the size of the tensor.
/// Entries of unknown type are kept, with the name of their type. `where` names the file. Throws
/// Error(corrupt), which names the entry if the error concerns one.
Manifest parse_manifest(std::string_view text, const std::string& where);

/// Parses the JSON or YAML of `.snapshot_metadata` to a value, without validation of its content.
Value parse_metadata(std::string_view text, const std::string& where);

/// Returns the text of `.snapshot_metadata`: JSON that is also valid YAML with the same content.
/// Throws Error(invalid_argument), naming the entry, for a string that is not UTF-8.
std::string write_manifest(const Manifest& manifest);

/// True for a relative path like "a/b" that stays inside its folder: no component is empty, "." or
/// "..", or contains a NUL.
bool is_plain_location(std::string_view location);

/// Encode the eight bytes of a number in base64, and decode them. number_of_base64() returns
/// nullopt if `text` is not the base64 of eight bytes.
std::string base64_of(double number);
std::optional<double> number_of_base64(std::string_view text);

}  // namespace tenfold::detail::formats::snapshot
