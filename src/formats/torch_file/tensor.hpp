#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include <tenfold/leaf.hpp>

#include "formats/torch_file/pickle.hpp"
#include "formats/torch_file/resolved.hpp"
#include "formats/torch_file/storages.hpp"

namespace tenfold::detail::formats::torch_file {

/// Returns the dtype of a storage class ("torch", "FloatStorage"); nullopt for another class, and
/// for untyped bytes.
std::optional<DType> storage_dtype(std::string_view module, std::string_view name);

/// Returns the integer dtype of a quantized storage class ("torch", "QInt8Storage"); nullopt for
/// another class, and for integers of less than 8 bits.
std::optional<DType> quantized_dtype(std::string_view module, std::string_view name);

/// Builds leaves from the calls with which torch and NumPy pickle tensors.
class Tensors {
 public:
  Tensors(Pickle& pickle, std::shared_ptr<Storages> storages)
      : pickle_(pickle), storages_(std::move(storages)) {}

  /// Returns the leaf for the tensor that call `id` creates; nullopt for other calls, among them
  /// those that create sparse, nested, jagged, quantized or meta tensors. A contiguous tensor stays
  /// on disk. A strided tensor is a view of its storage, which is mapped, or copied if it cannot be
  /// mapped. NumPy scalars and arrays are copied from the pickle. A tensor whose dtype must be
  /// converted is copied. Lazy conjugate and negative views are resolved when they are read or
  /// mapped. Throws Error(corrupt) for invalid arguments, such as a tensor that exceeds its
  /// storage, and Error(unsupported) for unsupported arguments, such as an unknown storage class.
  std::optional<Leaf> leaf(std::uint32_t id, const Pickle::Call& call);

  /// The integers of a quantized tensor, and the name of its dtype: "qint8".
  struct Quantized {
    Leaf integers;
    std::string dtype;
  };
  /// Reads the quantized tensor that `call`, a call of _rebuild_qtensor, creates. Throws like
  /// leaf().
  Quantized quantized(const Pickle::Call& call);

 private:
  Leaf rebuild(const Pickle::Call& call, bool names_dtype);
  Leaf parameter(const Pickle::Call& call, bool has_state);
  bool requires_grad(std::uint32_t id, const Leaf& leaf) const;
  std::optional<Leaf> of_type(std::uint32_t id, const Pickle::Call& call);
  Leaf of_device(std::uint32_t id, const Pickle::Call& call);
  Leaf converted(std::uint32_t id, const Leaf& leaf, DType dtype);
  DType torch_dtype(std::uint32_t id) const;
  Leaf of_call(std::uint32_t id);
  void warn_of_state(std::uint32_t state) const;
  LazyView lazy_view(std::uint32_t metadata) const;
  Leaf resolve(std::uint32_t id, const Leaf& bytes, LazyView view);
  Leaf view(DType dtype, std::size_t storage, std::uint64_t offset, Shape shape, Shape strides);

  struct Storage {
    std::size_t number = 0;
    std::optional<DType> dtype;  ///< empty for untyped bytes
  };
  using DTypeOfClass = std::optional<DType> (*)(std::string_view module, std::string_view name);
  Storage storage(std::uint32_t id, DTypeOfClass dtype_of = storage_dtype);

  Pickle& pickle_;
  std::shared_ptr<Storages> storages_;
  std::unordered_map<std::uint32_t, Leaf> copies_;  ///< by call: NumPy data, resolved lazy
                                                    ///< views, and converted tensors
};

/// Returns the NumPy scalar or array that call `id` creates, copied from the pickle; nullopt for
/// another call. Throws like Tensors::leaf().
std::optional<Leaf> numpy_leaf(const Pickle& pickle, std::uint32_t id, const Pickle::Call& call);

/// Returns the nested tensor that a call of _rebuild_nested_tensor with the arguments (buffer,
/// sizes, strides, offsets) creates. Throws Error(unsupported) unless its components are contiguous
/// and stored in order without gaps, and Error(corrupt) for invalid arguments.
Leaf nested_tensor(const Pickle& pickle, Tensors& tensors, const Pickle::Call& call);

}  // namespace tenfold::detail::formats::torch_file
