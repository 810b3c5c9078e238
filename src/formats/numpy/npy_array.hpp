#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tenfold/dtype.hpp>
#include <tenfold/leaf.hpp>
#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"

namespace tenfold::detail::formats::numpy {

// Conversion between NumPy arrays and tensors, for the formats .npy (one array) and .npz (several).

/// Returns NumPy's name of a dtype in little-endian order ("<f4", "|b1"); nullopt if NumPy has no
/// such dtype.
std::optional<std::string_view> npy_descr(DType dtype) noexcept;

/// Returns the dtype that NumPy calls `descr`. For one-byte elements, the name may have any byte
/// order. Returns nullopt for larger elements in big-endian order, and for types without a torch
/// dtype.
std::optional<DType> dtype_of_npy_descr(std::string_view descr) noexcept;

/// An array whose header matches the size of its bytes.
struct NpyArray {
  DType dtype = DType::float32;
  bool fortran_order = false;  ///< false if the array is empty or has at most one dimension
  Shape shape;
  std::uint64_t data_offset_bytes = 0;  ///< of its elements, from the start of the header
  std::uint64_t nbytes = 0;
};

/// Parses the header of an array. `total_bytes` is the size of the header and the elements; `head`
/// contains at least the header, unless the file is truncated. `where` names the array. Throws
/// Error(corrupt) for a damaged or truncated array. Throws Error(unsupported) for an unknown
/// version, for bytes after the array and for arrays that cannot be tensors: objects, structures,
/// big-endian elements, and types without a torch dtype, such as strings.
NpyArray parse_npy_array(std::string_view head, std::uint64_t total_bytes,
                         const base::Where& where);

/// Returns the strides, in elements, of an array in Fortran order.
Shape fortran_strides(const Shape& shape);

/// Returns the header that numpy.save writes for an array with the dtype and shape of `leaf` in C
/// order. npy_descr() must support the dtype.
std::string npy_head_of(const Leaf& leaf);

/// Throws Error(unsupported), naming `subject` (`key "x"`), for a leaf that a NumPy file cannot
/// store.
void check_npy_leaf(const std::string& subject, const Leaf& leaf);

/// Returns the tensor of `root`, the value of a bare root. Throws Error(unsupported) for a JSON
/// value, and like check_npy_leaf().
Leaf npy_leaf_of_root(const TensorDict::Item& root);

/// Throws Error(unsupported) for properties of the root that NumPy files cannot store: a kind other
/// than dict and tensordict, a batch size, names, a schema, or metadata. A tensordict is loaded as
/// a dict.
void check_npy_root(const NodeInfo& info);

}  // namespace tenfold::detail::formats::numpy
