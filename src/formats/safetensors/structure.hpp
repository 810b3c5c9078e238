#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

namespace tenfold::detail::formats::safetensors {

/// The document that tensordict's `to_safetensors` puts in `__metadata__["tensordict"]`:
///
///   {"version": 1, "root": LEVEL}
///   LEVEL = {"batch_size": [...], "names": [...] or null, "stack_dim"?: int, "class"?: str,
///            "keys": {key: {"tensor": name, "unbatched"?: true} | {"non_tensor": json}
///                          | {"td": LEVEL}}}
///
/// tensordict ignores members that it does not know, and we add three: "device" (of a level),
/// "lazy_stack" {"stack_dim", "name"} (of a level whose keys "0", "1", ... are the entries of a
/// lazy stack that tensordict cannot save), "stack_dim" (beside "non_tensor": a NonTensorStack).
struct StructureLevel {
  struct Entry {
    std::string key;
    /// The tensor's name, a JSON value, or a level; monostate until one of them was read.
    std::variant<std::monostate, std::string, NonTensor, std::unique_ptr<StructureLevel>> what;
    bool unbatched = false;
    std::optional<std::int64_t> stack_dim;
  };
  Shape batch_size;
  DimNames names;
  std::optional<std::int64_t> stack_dim;
  std::string class_name;
  std::string device;
  bool is_lazy_stack = false;  ///< our own form: the entries are levels
  std::int64_t lazy_stack_dim = 0;
  std::optional<std::string> lazy_stack_name;
  std::vector<Entry> entries;
  bool has_batch_size = false;
  bool has_keys = false;
};

/// Parses the document. Throws Error(corrupt) naming the node and the member; Error(unsupported)
/// for another version. `where` names file and member.
std::unique_ptr<StructureLevel> parse_structure(std::string_view text, const std::string& where);

}  // namespace tenfold::detail::formats::safetensors
