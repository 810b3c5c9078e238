#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"

namespace tenfold::detail::formats::folder {

/// Maximum size of a meta.json or `%notes.json`; a larger file is refused before it is read.
inline constexpr std::uint64_t kMaxMetaBytes = std::uint64_t{256} << 20;

/// Throws Error(unsupported) for a meta.json or `%notes.json` that is longer than `limit_bytes`,
/// because readers refuse it.
void check_meta_bytes(std::uint64_t size_bytes, const base::Where& where,
                      std::uint64_t limit_bytes = kMaxMetaBytes);

/// The highest `_format_version` that is read; also the one that is written.
inline constexpr std::int64_t kFormatVersion = 1;

/// One entry of a meta.json: a tensor, or a node or value in its own folder (`is_node`).
struct MetaEntry {
  std::string key;
  bool is_node = false;
  bool is_nested = false;
  DType dtype = DType::float32;
  Shape shape;
  std::uint64_t size_bytes = 0;    ///< of the data file or, of a nested tensor, the file of sizes
  std::optional<Error> problem{};  ///< why the tensor cannot be read; names no file
};

/// The kind of a node or value, according to `_class` and `_type` of its meta.json.
enum class MetaKind : std::uint8_t {
  tensordict,
  lazy_stack,
  non_tensor,        ///< NonTensorData, MetaData
  non_tensor_stack,  ///< NonTensorStack
  view,              ///< a view of the tree in the subfolder `_source`; not supported
  unknown,           ///< a user's class: a tensorclass, or a subclass of TensorDict
};

/// A parsed meta.json. parse_meta() does not check the syntax of `device`, the `stack_dim` of nodes
/// that are not stacks, or whether shapes begin with the batch size. It ignores `_format_version`,
/// `_class`, `_names`, and `is_nested` of a tensor, if their type is wrong.
struct NodeMeta {
  MetaKind kind = MetaKind::tensordict;
  std::string type;  ///< `_type`, as str(cls); `_class` if there is none
  bool has_shape = false;
  Shape batch_size;
  DimNames names;              ///< empty, or one per batch dimension
  std::string device;          ///< empty for none
  std::int64_t stack_dim = 0;  ///< for stacks
  std::optional<std::string> stack_dim_name;
  std::vector<MetaEntry> entries;  ///< in the order of the file; parsed for every kind
  /// The members `shape`, `device` and `_type` in the order of the file, each with the number of
  /// entries before it. If the node has an entry whose key is such a name, this number is the
  /// position of that entry.
  std::vector<std::pair<std::string_view, std::size_t>> reserved;
};

/// Parses a meta.json of version 0 or 1. `where` is the path of the file. Throws Error(corrupt) if
/// the text is not a meta.json, and Error(unsupported) for a higher version. An entry that cannot
/// be read gets a MetaEntry::problem, and does not affect other entries.
NodeMeta parse_meta(std::string_view text, const std::string& where);

/// Sets `size_bytes` of a tensor's entry from its dtype and shape, or `problem` if they are
/// invalid.
void check_leaf_size(MetaEntry& entry);

/// Returns the error with which readers refuse a batch size that is negative or too large; nullopt
/// for other batch sizes.
std::optional<Error> batch_size_fault(const Shape& batch);

/// Returns the members in the meta.json of a NonTensorData, NonTensorStack or tensorclass, except
/// `_type`. `where` is the path of the file. Throws Error(corrupt) if the text is not a JSON
/// object.
Value::Object parse_fields(std::string_view text, const std::string& where);

/// Returns Python's __name__ of a class: "MyData" for "<class 'module.MyData'>".
std::string_view short_class_name(std::string_view type) noexcept;

/// A member of a TensorDict's meta.json. Usually it describes the entry `key`. If is_reserved_key()
/// is true for the key, meta.json cannot describe the entry: the member then is the node's metadata
/// of that name, at the position of the entry.
struct MetaMember {
  std::string_view key;
  std::string_view node_type;  ///< class name of a node or value; empty for a tensor
  DType dtype = DType::float32;
  const Shape* shape = nullptr;
  bool is_nested = false;
};

/// True if a tensor of this shape may be in a node of batch size `batch`. For a nested tensor,
/// `shape` is [number of components, number of dimensions of a component], and only the number of
/// components is compared.
bool fits_batch(const Shape& shape, bool is_nested, const Shape& batch);

/// True for "shape", "device" and "_type": a TensorDict's meta.json uses these keys for metadata,
/// so it cannot describe entries with them.
bool is_reserved_key(std::string_view key) noexcept;

// These functions return the text of a meta.json, byte for byte as tensordict 0.15.3 writes it.
std::string tensordict_meta(const NodeInfo& info, const std::vector<MetaMember>& members);
std::string lazy_stack_meta(const NodeInfo& info);
std::string tensorclass_meta(const NodeInfo& info);
/// Throws Error(invalid_argument) for a stack that is not a list or tuple.
std::string non_tensor_meta(const NonTensor& value);

}  // namespace tenfold::detail::formats::folder
