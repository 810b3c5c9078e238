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

// NumPy's arrays as tensors: what files of one (.npy) and of several (.npz) share.

/// NumPy's name of a dtype in little-endian order ("<f4", "|b1"), or nothing where it has none.
std::optional<std::string_view> npy_descr(DType dtype) noexcept;

/// The dtype of such a name; one-byte elements may claim any byte order. Nothing for big-endian
/// elements and for what torch has no dtype for.
std::optional<DType> dtype_of_npy_descr(std::string_view descr) noexcept;

/// An array whose header was checked against the bytes that hold it.
struct NpyArray {
  DType dtype = DType::float32;
  bool fortran_order = false;  ///< and it has more than one dimension, and elements
  Shape shape;
  std::uint64_t data_offset_bytes = 0;  ///< of its elements, from the start of its header
  std::uint64_t nbytes = 0;
};

/// Parses the start of `total_bytes` bytes that are one array; `head` holds at least its header.
/// `where` names them. Throws Error(corrupt), and Error(unsupported) for what is no tensor:
/// objects, structures, text, big-endian elements.
NpyArray parse_npy_array(std::string_view head, std::uint64_t total_bytes,
                         const base::Where& where);

/// Strides in elements of an array in Fortran order.
Shape fortran_strides(const Shape& shape);

/// The header that numpy.save writes before the elements of a tensor that npy_descr() has a name
/// for.
std::string npy_head_of(const Leaf& leaf);

/// Throws Error(unsupported), naming `subject` (`key "x"`), for a leaf that is no plain array of
/// NumPy's.
void check_npy_leaf(const std::string& subject, const Leaf& leaf);

/// The same for what a root says that such files have no place for: any kind but dict and
/// tensordict, which come back as dicts, a batch size, names, a schema, metadata.
void check_npy_root(const NodeInfo& info);

}  // namespace tenfold::detail::formats::numpy
