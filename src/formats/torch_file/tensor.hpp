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

/// The elements of a storage class ("torch", "FloatStorage"); nothing for another, and for untyped
/// bytes.
std::optional<DType> storage_dtype(std::string_view module, std::string_view name);

/// The integers of a storage class of quantized elements ("torch", "QInt8Storage"); nothing for
/// another, and for those of less than 8 bits.
std::optional<DType> quantized_dtype(std::string_view module, std::string_view name);

/// Makes leaves of the calls by which torch and NumPy pickle tensors.
class Tensors {
 public:
  Tensors(Pickle& pickle, std::shared_ptr<Storages> storages)
      : pickle_(pickle), storages_(std::move(storages)) {}

  /// The leaf of the call `id`; nothing if it makes no tensor. A tensor that is contiguous stays on
  /// disk; another is a strided view of its storage. Throws Error(corrupt) for one that reaches
  /// beyond its storage. Lazy conjugate and negative views have the values that they stand for.
  std::optional<Leaf> leaf(std::uint32_t id, const Pickle::Call& call);

  /// A quantized tensor's integers, and the name of their dtype: "qint8". `call` is of
  /// _rebuild_qtensor.
  struct Quantized {
    Leaf integers;
    std::string dtype;
  };
  Quantized quantized(const Pickle::Call& call);

 private:
  Leaf rebuild(const Pickle::Call& call, bool names_dtype);
  Leaf parameter(const Pickle::Call& call, bool has_state);
  bool requires_grad(std::uint32_t id, const Leaf& leaf) const;
  std::optional<Leaf> of_type(std::uint32_t id, const Pickle::Call& call);
  Leaf of_call(std::uint32_t id);
  void warn_of_state(std::uint32_t state) const;
  LazyView lazy_view(std::uint32_t metadata) const;
  Leaf resolve(std::uint32_t id, const Leaf& bytes, LazyView view);
  Leaf view(DType dtype, std::size_t storage, std::uint64_t offset, Shape shape, Shape strides);

  struct Storage {
    std::size_t number = 0;
    std::optional<DType> dtype;  ///< nothing for untyped bytes
  };
  using DTypeOfClass = std::optional<DType> (*)(std::string_view module, std::string_view name);
  Storage storage(std::uint32_t id, DTypeOfClass dtype_of = storage_dtype);

  Pickle& pickle_;
  std::shared_ptr<Storages> storages_;
  std::unordered_map<std::uint32_t, Leaf> copies_;  ///< out of the pickle, or of lazy views
};

/// The leaf of a numpy scalar or array, copied out of the pickle; nothing for another call.
std::optional<Leaf> numpy_leaf(const Pickle& pickle, std::uint32_t id, const Pickle::Call& call);

/// A nested tensor: a call of (buffer, sizes, strides, offsets), of which the last two must say:
/// one after the other.
Leaf nested_tensor(const Pickle& pickle, Tensors& tensors, const Pickle::Call& call);

}  // namespace tenfold::detail::formats::torch_file
