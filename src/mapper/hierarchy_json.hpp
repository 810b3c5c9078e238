#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

#include "mapper/hierarchy.hpp"

namespace tenfold {

// A hierarchy as one JSON file: the nested levels themselves. If it has tensors, keys that begin
// with "%", or another default key than "default", the root's first member is
// `"%state_mapper": {"version": 1, "default_key": "default"}`. In such a file, tensors are
// `{"%tensor": "float32", "shape": [2], "values": [1.0, 2.0]}`, and a key that begins with "%" is
// written with another "%" before it. Without "%state_mapper", the file is plain JSON, which any
// program may write.

/// True if the name is that of an index of safetensors shards: "*.safetensors.index.json".
bool is_shard_index(const Path& path);

/// The content of a file that begins like a JSON object; nullopt for other files and folders, for a
/// missing file, and for an index of safetensors shards. Throws Error(io) if the file cannot be
/// read.
std::optional<std::string> hierarchy_json_text(const Path& path);

/// The head and the tree of a hierarchy in JSON. Throws Error(corrupt) if `text` is not a valid
/// hierarchy, and Error(unsupported) for a version other than 1.
std::pair<MapperHead, TensorDict> parse_hierarchy_json(std::string_view text,
                                                       const std::string& where);

/// Writes the file and replaces `path` atomically. Throws Error(io) (EEXIST) if `path` exists and
/// `overwrite` is false. Throws Error(unsupported) naming a value that the file cannot store: a
/// mapper, a tensor of complex numbers or float4, or a tensor of more than 65,536 numbers.
void save_hierarchy_json(const Hierarchy& hierarchy, const Path& path, bool durable,
                         bool overwrite);

}  // namespace tenfold
