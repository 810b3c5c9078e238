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

/// Python text as UTF-8; lone surrogates become their three-byte form.
std::string utf8(nb::handle text);
/// The other way; bytes that are no UTF-8 become lone surrogates, as in os.fsdecode.
nb::str text(std::string_view utf8_bytes);
/// None for what is empty.
nb::object text_or_none(std::string_view utf8_bytes);

/// A str, bytes or os.PathLike as a path.
Path path_from(nb::handle path);
std::vector<Path> paths_from(nb::handle sequence);

/// "r", "c" or "r+"; anything else is Error(invalid_argument).
Mode mode_from(std::string_view mode);
/// A name as torch spells it: "float32". Error(invalid_argument) if there is no such dtype.
DType dtype_from(std::string_view name);

nb::tuple tuple_of(const Shape& lengths);
Shape shape_from(nb::handle sequence_of_int);

/// JSON both ways. `text()` above for strings, int for integers of any size. Throws
/// Error(unsupported) with long_integer() for one of more digits than Python converts.
nb::object to_python(const Value& value);
/// The same for the value of a key of a node, which errors name.
nb::object to_python(const Value& value, const TensorDict& node, std::string_view key);
/// What is wrong with an integer of more digits than Python converts.
std::string long_integer(std::optional<std::size_t> num_digits);
/// The key of a dict that `key` stands for.
nb::object key_from(std::string_view key, bool int_keys, const TypedKeys& typed_keys);

/// Where an object of Python lives as long as an owner in C++, which any thread may drop.
std::shared_ptr<const void> keep_alive(nb::object object);

/// Handle of a node of the tree, as Python's TensorDict holds it.
struct NodeHandle {
  TensorDict node;
};

/// An entry of a node on its way from one tree to another, untouched.
struct ItemHandle {
  TensorDict::Item item;
};

/// [("model.*",), ("a", "b")]: each a path, or one glob or dotted name.
std::vector<KeyPath> key_paths(nb::handle keys);
/// (problems, number of leaves, of bytes, of checksums), as reports.py takes them.
nb::tuple tuple_of(const Problem& problem);
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
