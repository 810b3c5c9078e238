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

/// Encodes a Python str as UTF-8; lone surrogates are encoded in three bytes.
std::string utf8(nb::handle text);
/// The inverse; bytes that are not UTF-8 become lone surrogates, as in os.fsdecode.
nb::str text(std::string_view utf8_bytes);
/// None for an empty string.
nb::object text_or_none(std::string_view utf8_bytes);

/// Converts a str, bytes or os.PathLike to a path.
Path path_from(nb::handle path);
std::vector<Path> paths_from(nb::handle sequence);

/// Parses "r", "c" or "r+"; anything else is Error(invalid_argument).
Mode mode_from(std::string_view mode);
/// Parses torch's name of a dtype: "float32". Error(invalid_argument) if there is no such dtype.
DType dtype_from(std::string_view name);

nb::tuple tuple_of(const Shape& lengths);
Shape shape_from(nb::handle sequence_of_int);

/// Converts JSON values. Uses text() above for strings, int for integers of any size. Throws
/// Error(unsupported) with long_integer() for an integer with more digits than Python converts.
nb::object to_python(const Value& value);
/// The same for the value under `key` of `node`; error messages name the key.
nb::object to_python(const Value& value, const TensorDict& node, std::string_view key);
/// Error message for an integer with more digits than Python converts. `num_digits`: if known.
std::string long_integer(std::optional<std::size_t> num_digits);
/// The dict key that a node's `key` represents.
nb::object key_from(std::string_view key, bool int_keys, const TypedKeys& typed_keys);

/// Keeps a Python object alive as long as the result, which any thread may destroy.
std::shared_ptr<const void> keep_alive(nb::object object);

/// Handle of a node of the tree, held by Python's TensorDict.
struct NodeHandle {
  TensorDict node;
};

/// An entry of a node that is moved to another tree unchanged.
struct ItemHandle {
  TensorDict::Item item;
};

/// Parses a list such as [("model.*",), ("a", "b")]: each tuple is a path of keys, or one glob or
/// dotted name. None is an empty list.
std::vector<KeyPath> key_paths(nb::handle keys);
/// The arguments of Problem in _reports.py.
nb::tuple tuple_of(const Problem& problem);
/// (problems, number of leaves, of bytes, of checksums, keys without checksums), as verify_report()
/// in _reports.py takes them.
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
