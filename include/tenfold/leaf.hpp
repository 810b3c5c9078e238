#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <tenfold/tensor.hpp>

namespace tenfold {

/// How torch's autograd treats a tensor: no gradient, requires_grad, or a Parameter.
enum class Grad : std::uint8_t {
  none,              ///< a plain tensor
  required,          ///< a tensor with requires_grad
  parameter,         ///< a Parameter
  frozen_parameter,  ///< a Parameter without requires_grad
};

namespace detail {
class LeafSource;
struct Access;
}  // namespace detail

/// A tensor of the tree: in memory, or on disk and known by its metadata only.
///
///     const auto& leaf = std::get<tenfold::Leaf>(td.get("weight"));
///     leaf.dtype(), leaf.shape();                        // reads nothing
///     std::vector<std::byte> head(1024);
///     leaf.read(0, head);                                // reads 1024 bytes
///
/// A moved-from Leaf can only be assigned or destroyed.
///
/// Thread safety: const members may be called from any thread.
class TENFOLD_API Leaf {
 public:
  /// Creates a leaf over a tensor in memory.
  Leaf(Tensor tensor);  // NOLINT(google-explicit-constructor): a tensor is a leaf

  /// The type of the elements.
  DType dtype() const noexcept { return tensor_.has_value() ? tensor_->dtype() : dtype_; }
  /// The tensor's shape. For a nested leaf: the shape `[n, k]` of sizes().
  const Shape& shape() const& noexcept {
    return tensor_.has_value() && !nested_ ? tensor_->shape() : shape_;
  }
  /// Overload for temporaries: returns the shape by value.
  Shape shape() && { return tensor_.has_value() && !nested_ ? tensor_->shape() : shape_; }
  /// The size in bytes of a contiguous copy. For a nested leaf on disk, this call reads sizes().
  std::uint64_t nbytes() const;

  /// The tensor. The first call maps a leaf on disk (or reads it, if it is small or compressed) and
  /// checks the size of the leaf's file. Throws Error(corrupt) if the file is too short or its
  /// compressed bytes are damaged, Error(io) if it cannot be read or its folder was replaced since
  /// it was opened. For a nested leaf, returns the values of all components in one dimension.
  Tensor tensor() const;

  /// True if the leaf holds its tensor: it was made from one, or load() has mapped it. False for a
  /// leaf on disk that is known by its metadata only, and for the leaves of load() in
  /// Mode::write_through.
  bool in_memory() const noexcept { return tensor_.has_value(); }
  /// The leaf's own tensor if in_memory(), without copying the Tensor handle; otherwise null.
  const Tensor* tensor_in_memory() const noexcept TENFOLD_LIFETIMEBOUND {
    return tensor_.has_value() ? &*tensor_ : nullptr;
  }

  /// Copies destination.size() bytes of the contiguous tensor, from `offset_bytes` on, into the
  /// caller's buffer. Bytes on disk are read in bounded memory, except that a compressed entry of
  /// an archive, or a member of an .npz in Fortran order, is decoded as a whole. Throws
  /// Error(invalid_argument) if the range exceeds the tensor, and what tensor() throws.
  void read(std::uint64_t offset_bytes, std::span<std::byte> destination) const;

  /// True for a strided nested tensor (torch.nested, default layout): n components of k dimensions.
  bool is_nested() const noexcept { return nested_; }
  /// The shapes of the components: int64 `[n, k]`. Throws Error(invalid_argument) if not nested.
  Tensor sizes() const;
  /// Makes a nested leaf of `values` (one dimension) and `sizes` (int64 `[n, k]`). Throws
  /// Error(invalid_argument) if they do not fit each other.
  static Leaf nested(Tensor values, Tensor sizes);
  /// Marks a leaf on disk as nested. Its shape() must already be the shape `[n, k]` of sizes().
  void mark_nested() noexcept { nested_ = true; }

  /// True if the leaf is exempt from the batch_size of its node (tensordict's UnbatchedTensor). In
  /// a folder such leaves are in the sub-folder `%values/`, which has batch_size [] and which
  /// meta.json does not name.
  bool is_unbatched() const noexcept { return unbatched_; }
  /// Sets is_unbatched().
  void mark_unbatched(bool unbatched = true) noexcept { unbatched_ = unbatched; }

  /// The autograd state of the torch tensor from which the leaf was made, or the state that
  /// torch.save stored. No format other than that of torch.save stores the state.
  Grad grad() const noexcept { return grad_; }
  /// Sets grad().
  void mark_grad(Grad grad) noexcept { grad_ = grad; }

  /// True if the leaf is a view of a part of a storage in a file of torch.save. buffer() of
  /// tensor() is then the whole storage, so that torch tensors become views of one storage again.
  bool in_storage() const noexcept { return in_storage_; }
  /// Sets in_storage().
  void mark_in_storage(bool in_storage = true) noexcept { in_storage_ = in_storage; }

 private:
  friend struct detail::Access;

  /// A leaf that `source` can map or read; only the source interprets `position`.
  Leaf(DType dtype, Shape shape, std::shared_ptr<detail::LeafSource> source,
       std::uint64_t position);

  DType dtype_ = DType::float32;
  bool nested_ = false;
  bool unbatched_ = false;
  bool in_storage_ = false;
  Grad grad_ = Grad::none;
  Shape shape_;
  std::shared_ptr<detail::LeafSource> source_;  ///< null for a leaf in memory
  std::uint64_t position_ = 0;
  std::optional<Tensor> tensor_;
  std::shared_ptr<const Tensor> sizes_;
};

}  // namespace tenfold
