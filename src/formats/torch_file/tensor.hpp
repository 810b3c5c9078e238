#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>

#include <tenfold/leaf.hpp>

#include "formats/torch_file/pickle.hpp"
#include "formats/torch_file/storages.hpp"

namespace tenfold::detail::formats::torch_file {

/// The elements of a storage class ("torch", "FloatStorage"); nothing for another, and for untyped
/// bytes.
std::optional<DType> storage_dtype(std::string_view module, std::string_view name);

/// Makes leaves of the calls by which torch and NumPy pickle tensors.
class Tensors {
 public:
  Tensors(Pickle& pickle, std::shared_ptr<Storages> storages)
      : pickle_(pickle), storages_(std::move(storages)) {}

  /// The leaf of the call `id`; nothing if it makes no tensor. A tensor that is contiguous stays on
  /// disk; another is a strided view of its storage. Throws Error(corrupt) for one that reaches
  /// beyond its storage, and Error(unsupported) for conjugate and negative views.
  std::optional<Leaf> leaf(std::uint32_t id, const Pickle::Call& call);

 private:
  Leaf rebuild(const Pickle::Call& call, bool names_dtype);
  Leaf parameter(const Pickle::Call& call, bool has_state);
  bool requires_grad(std::uint32_t id, const Leaf& leaf) const;
  std::optional<Leaf> of_type(const Pickle::Call& call);
  Leaf of_call(std::uint32_t id);
  void warn_of_state(std::uint32_t state) const;
  void require_plain(std::uint32_t metadata) const;
  Leaf view(DType dtype, std::size_t storage, std::uint64_t offset, Shape shape, Shape strides);

  struct Storage {
    std::size_t number = 0;
    std::optional<DType> dtype;  ///< nothing for untyped bytes
  };
  Storage storage(std::uint32_t id);

  Pickle& pickle_;
  std::shared_ptr<Storages> storages_;
  std::unordered_map<std::uint32_t, Leaf> copies_;  ///< out of the pickle
};

/// The leaf of a numpy scalar or array, copied out of the pickle; nothing for another call.
std::optional<Leaf> numpy_leaf(const Pickle& pickle, std::uint32_t id, const Pickle::Call& call);

/// A nested tensor: a call of (buffer, sizes, strides, offsets), of which the last two must say:
/// one after the other.
Leaf nested_tensor(const Pickle& pickle, Tensors& tensors, const Pickle::Call& call);

}  // namespace tenfold::detail::formats::torch_file
