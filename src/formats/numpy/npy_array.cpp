#include "formats/numpy/npy_array.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "codecs/npy_header.hpp"
#include "formats/shared/storable.hpp"

namespace tenfold::detail::formats::numpy {
namespace {

constexpr std::size_t kMaxDimensions = 64;  // limit of NumPy 2 and of torch's reductions

struct Name {
  DType dtype;
  std::string_view descr;
};
constexpr std::array<Name, 14> kNames = {{{DType::bool_, "|b1"},
                                          {DType::uint8, "|u1"},
                                          {DType::uint16, "<u2"},
                                          {DType::uint32, "<u4"},
                                          {DType::uint64, "<u8"},
                                          {DType::int8, "|i1"},
                                          {DType::int16, "<i2"},
                                          {DType::int32, "<i4"},
                                          {DType::int64, "<i8"},
                                          {DType::float16, "<f2"},
                                          {DType::float32, "<f4"},
                                          {DType::float64, "<f8"},
                                          {DType::complex64, "<c8"},
                                          {DType::complex128, "<c16"}}};

DType supported_dtype(const codecs::NpyHeader& header, const base::Where& where) {
  const std::string found = base::quote(header.descr);
  if (header.is_structured) {
    throw base::unsupported(where)
        .part("dtype")
        .problem("a structured array is not a tensor")
        .expected("one number per element")
        .found("fields ", found)
        .remedy("save each field as a separate file");
  }
  if (const auto dtype = dtype_of_npy_descr(header.descr)) return *dtype;
  const std::string_view type =
      std::string_view(header.descr)
          .substr(std::min(header.descr.find_first_not_of("<>|="), header.descr.size()));
  if (type.starts_with('O')) {
    throw base::unsupported(where)
        .part("dtype")
        .problem("an array of Python objects is a pickle, which is never executed")
        .expected("numbers")
        .found(found);
  }
  if (header.descr.starts_with('>') &&
      dtype_of_npy_descr('<' + header.descr.substr(1)).has_value()) {
    // Swapping the bytes would need a copy of the whole array in memory.
    throw base::unsupported(where)
        .part("dtype")
        .problem("big-endian elements cannot be mapped")
        .expected("little-endian ones")
        .found(found)
        .remedy("save array.astype(array.dtype.newbyteorder(\"<\")) in NumPy");
  }
  throw base::unsupported(where)
      .part("dtype")
      .problem("torch has no such dtype")
      .expected("numbers or bool")
      .found(found);
}

}  // namespace

std::optional<std::string_view> npy_descr(DType dtype) noexcept {
  for (const Name& row : kNames) {
    if (row.dtype == dtype) return row.descr;
  }
  return std::nullopt;
}

std::optional<DType> dtype_of_npy_descr(std::string_view descr) noexcept {
  if (descr.size() < 2) return std::nullopt;
  for (const Name& row : kNames) {
    const bool any_order = row.descr[0] == '|';
    const bool order_fits = any_order ? std::string_view("<>|=").find(descr[0]) < 4
                                      : descr[0] == '<' || descr[0] == '=';
    if (order_fits && descr.substr(1) == row.descr.substr(1)) return row.dtype;
  }
  return std::nullopt;
}

NpyArray parse_npy_array(std::string_view head, std::uint64_t total_bytes,
                         const base::Where& where) {
  codecs::NpyHeader header = codecs::parse_npy_header(head, where);
  NpyArray array;
  array.dtype = supported_dtype(header, where);
  if (header.shape.size() > kMaxDimensions) {
    throw base::corrupt(where)
        .part("shape")
        .problem("too many dimensions")
        .expected("at most ", kMaxDimensions)
        .found(header.shape.size());
  }
  try {
    array.nbytes = nbytes_of(array.dtype, header.shape);
  } catch (const Error&) {
    throw base::corrupt(where)
        .part("shape")
        .problem("too large")
        .expected("at most 2^63 - 1 bytes")
        .found(base::list_text(header.shape));
  }
  array.data_offset_bytes = header.data_offset_bytes;
  const std::uint64_t data_bytes = total_bytes - array.data_offset_bytes;
  if (data_bytes < array.nbytes) {
    throw base::corrupt(where)
        .part("data")
        .problem("too short for ", to_string(array.dtype), " ", base::list_text(header.shape))
        .expected(array.nbytes, " bytes")
        .found(data_bytes)
        .remedy("the file may be truncated");
  }
  if (data_bytes > array.nbytes) {
    throw base::unsupported(where)
        .part("data")
        .problem("bytes after the array")
        .expected(array.nbytes, " bytes")
        .found(data_bytes)
        .remedy("if the file has several arrays, only NumPy can read it");
  }
  array.fortran_order = header.fortran_order && header.shape.size() > 1 && array.nbytes > 0;
  array.shape = std::move(header.shape);
  return array;
}

Shape fortran_strides(const Shape& shape) {
  Shape strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < strides.size(); ++i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

std::string npy_head_of(const Leaf& leaf) {
  codecs::NpyHeader header;
  header.descr = *npy_descr(leaf.dtype());
  header.shape = leaf.shape();
  return codecs::write_npy_header(header);
}

void check_npy_root(const NodeInfo& info) {
  const auto refuse = [] { return base::unsupported().part("root"); };
  if (info.kind != NodeKind::dict && info.kind != NodeKind::tensordict) {
    throw refuse()
        .problem("its kind cannot be stored")
        .expected("a dict or tensordict")
        .found(to_string(info.kind));
  }
  if (!info.batch_size.empty() || !info.names.empty()) {
    throw refuse()
        .problem("batch_size cannot be stored")
        .expected("[]")
        .found(base::list_text(info.batch_size));
  }
  if (info.schema || !info.metadata.empty()) {
    throw refuse().problem("a schema or metadata cannot be stored").expected("none").found("some");
  }
}

void check_npy_leaf(const std::string& subject, const Leaf& leaf) {
  const auto refuse = [&] { return base::unsupported().part(subject); };
  require_dense(leaf, refuse);
  if (!npy_descr(leaf.dtype())) {
    throw refuse()
        .problem("NumPy has no name for the dtype")
        .expected("a dtype of NumPy")
        .found(to_string(leaf.dtype()));
  }
  if (leaf.shape().size() > kMaxDimensions) {
    throw refuse()
        .problem("too many dimensions")
        .expected("at most ", kMaxDimensions)
        .found(leaf.shape().size());
  }
  if (leaf.is_unbatched()) {
    throw refuse()
        .problem("an unbatched tensor cannot be stored")
        .expected("a batched one")
        .found("an unbatched one");
  }
}

Leaf npy_leaf_of_root(const TensorDict::Item& root) {
  const auto* leaf = std::get_if<Leaf>(&root);
  if (leaf == nullptr) {
    throw base::unsupported()
        .part("root")
        .problem("it cannot be stored")
        .expected("a tensor")
        .found("a JSON value");
  }
  check_npy_leaf("root", *leaf);
  return *leaf;
}

}  // namespace tenfold::detail::formats::numpy
