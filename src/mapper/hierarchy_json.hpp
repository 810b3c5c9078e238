#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

#include "mapper/hierarchy.hpp"

namespace tenfold {

// A hierarchy as one JSON file: the nested levels themselves. If they do not express everything,
// the root's first member is `"%state_mapper": {"version": 1, "default_key": "default"}`, tensors
// are `{"%tensor": "float32", "shape": [2], "values": [1.0, 2.0]}`, and a key that begins with "%"
// has one more. Without that member the file is plain JSON, as any program writes it.

/// The content of a file that begins as a JSON object, unless it is the index of safetensors
/// shards.
std::optional<std::string> hierarchy_json_text(const Path& path);

/// The head and the tree of a hierarchy in JSON. Throws Error(corrupt).
std::pair<MapperHead, TensorDict> parse_hierarchy_json(std::string_view text,
                                                       const std::string& where);

/// Writes the file and puts it into its place in one step. Throws Error(unsupported) naming a value
/// without a readable form: a mapper, a tensor of complex numbers or of more than 65,536 numbers.
void save_hierarchy_json(const Hierarchy& hierarchy, const Path& path, bool durable,
                         bool overwrite);

}  // namespace tenfold
