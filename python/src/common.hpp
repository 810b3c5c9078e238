#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/tenfold.hpp>

namespace nb = nanobind;

namespace tenfold::python {

/// Encodes a Python str as UTF-8. A lone surrogate becomes three bytes, as with "surrogatepass".
std::string utf8(nb::handle text);
/// Decodes UTF-8, and restores lone surrogates that utf8() encoded. If the bytes are otherwise
/// invalid, each invalid byte becomes a lone surrogate, as in os.fsdecode().
nb::str text(std::string_view utf8_bytes);
/// None for an empty string.
nb::object text_or_none(std::string_view utf8_bytes);

/// Converts a str, bytes or os.PathLike to a path.
Path path_from(nb::handle path);
std::vector<Path> paths_from(nb::handle sequence);

/// Parses "r", "c" or "r+". Throws Error(invalid_argument) for any other name.
Mode mode_from(std::string_view mode);
/// Parses a dtype as torch names it: "float32". Throws Error(invalid_argument) for any other name.
DType dtype_from(std::string_view name);

nb::tuple tuple_of(const Shape& lengths);
Shape shape_from(nb::handle sequence_of_int);

/// Converts a JSON value or extended scalar to a Python object. Throws Error(unsupported) with the
/// message of long_integer() for an integer with more digits than Python converts.
nb::object to_python(const Value& value);
/// Like to_python(value), for the value under `key` of `node`. Error messages name the node and the
/// key.
nb::object to_python(const Value& value, const TensorDict& node, std::string_view key);
/// Error message for an integer with more digits than Python converts. `num_digits` may be unknown.
std::string long_integer(std::optional<std::size_t> num_digits);
/// Converts the string under which a node stores a dict key to that key: an int if `int_keys` is
/// true, the key that `typed_keys` has for the string, or else a str.
nb::object key_from(std::string_view key, bool int_keys, const TypedKeys& typed_keys);

/// Returns a pointer that keeps `object` alive. Any thread may destroy the pointer.
std::shared_ptr<const void> keep_alive(nb::object object);

/// Handle of a node of the tree, held by Python's TensorDict.
struct NodeHandle {
  TensorDict node;
};

/// Handle of an entry of a node, which Python passes on to put the entry into another tree
/// unchanged.
struct ItemHandle {
  TensorDict::Item item;
};

/// Parses a list such as [("model.*",), ("a", "b")]: each tuple is a path of keys, or one glob or
/// dotted name. None is an empty list.
std::vector<KeyPath> key_paths(nb::handle keys);
/// The arguments of the constructor of Problem in tenfold/_reports.py.
nb::tuple tuple_of(const Problem& problem);
/// The arguments of verify_report() in tenfold/_reports.py: (problems, number of leaves, number of
/// bytes, number of checksums, keys without checksums).
nb::tuple tuple_of(const VerifyReport& report);

void bind_node(nb::module_& module);
void bind_tree(nb::module_& module);
void bind_io(nb::module_& module);
void bind_flat_safetensors(nb::module_& module);
void bind_memmap(nb::module_& module);
void bind_mapped_file(nb::module_& module);
void bind_snapshot(nb::module_& module);
void bind_checkpoint(nb::module_& module);
void bind_sharded_writer(nb::module_& module);
void bind_ingest_sources(nb::module_& module);
void bind_ingest(nb::module_& module);
void bind_text_stream(nb::module_& module);
void bind_cli(nb::module_& module);

}  // namespace tenfold::python
