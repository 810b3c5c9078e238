#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <tenfold/tensor.hpp>

namespace tenfold {

/// What torch's autograd makes of a tensor: nothing, one that requires a gradient, or a Parameter.
enum class Grad : std::uint8_t { none, required, parameter, frozen_parameter };

class LeafSource;

/// A tensor of the tree: in memory, or still on disk and described by its metadata alone.
///
/// Thread safety: all members may be called from any thread.
class TENFOLD_API Leaf {
 public:
  /// A leaf over memory.
  Leaf(Tensor tensor);  // NOLINT(google-explicit-constructor): a tensor is a leaf

  /// A leaf that `source` can map or read; `position` means what the source wants it to mean.
  Leaf(DType dtype, Shape shape, std::shared_ptr<LeafSource> source, std::uint64_t position);

  DType dtype() const noexcept { return tensor_.has_value() ? tensor_->dtype() : dtype_; }
  /// The tensor's shape. Of a nested leaf: the shape `[n, k]` of sizes().
  const Shape& shape() const& noexcept {
    return tensor_.has_value() && !nested_ ? tensor_->shape() : shape_;
  }
  Shape shape() && { return tensor_.has_value() && !nested_ ? tensor_->shape() : shape_; }
  /// Bytes of a contiguous copy. Of a nested leaf on disk this reads its sizes.
  std::uint64_t nbytes() const;

  /// The tensor; a leaf on disk is mapped (or read, if small) at the first call, and its file's
  /// size is checked. Throws Error(corrupt) if the file is too short, Error(io) if it cannot be
  /// read or was replaced since it was opened. Of a nested leaf: all values in one dimension.
  Tensor tensor() const;

  /// True if the bytes are in memory already (not merely mapped from a file).
  bool in_memory() const noexcept { return tensor_.has_value(); }
  /// The tensor of a leaf in memory, without a copy of the handle; null for one on disk.
  const Tensor* tensor_in_memory() const noexcept TENFOLD_LIFETIMEBOUND {
    return tensor_.has_value() ? &*tensor_ : nullptr;
  }

  /// Copies the bytes [offset_bytes, offset_bytes + into.size()) of the contiguous tensor,
  /// through `pread` if they are on disk: bounded memory, and a clean error if the file shrank.
  void read(std::uint64_t offset_bytes, std::span<std::byte> into) const;

  /// A strided nested tensor (torch.nested, default layout): n components of k dimensions.
  bool is_nested() const noexcept { return nested_; }
  /// int64 `[n, k]`: the shape of each component. Throws Error(invalid_argument) if not nested.
  Tensor sizes() const;
  /// Makes a nested leaf of `values` (one dimension) and `sizes` (int64 `[n, k]`).
  static Leaf nested(Tensor values, Tensor sizes);
  /// Marks a leaf on disk as nested; its shape() is then that of sizes().
  void mark_nested() noexcept { nested_ = true; }

  /// Exempt from the batch_size of its node (tensordict's UnbatchedTensor). In a folder such leaves
  /// lie in the sub-folder `%values/`, itself a folder of batch_size [] that meta.json does not
  /// name.
  bool is_unbatched() const noexcept { return unbatched_; }
  void mark_unbatched(bool unbatched = true) noexcept { unbatched_ = unbatched; }

  /// What a file of torch.save says of it, and only such a file: it changes no byte.
  Grad grad() const noexcept { return grad_; }
  void mark_grad(Grad grad) noexcept { grad_ = grad; }

  /// A part of a storage of torch, in which others may lie, too: the buffer of tensor() is all of
  /// it, so that in torch they are views of one storage again.
  bool in_storage() const noexcept { return in_storage_; }
  void mark_in_storage(bool in_storage = true) noexcept { in_storage_ = in_storage; }

  /// Null for a leaf in memory.
  const std::shared_ptr<LeafSource>& source() const noexcept { return source_; }
  std::uint64_t position() const noexcept { return position_; }

 private:
  DType dtype_ = DType::float32;
  bool nested_ = false;
  bool unbatched_ = false;
  bool in_storage_ = false;
  Grad grad_ = Grad::none;
  Shape shape_;
  std::shared_ptr<LeafSource> source_;
  std::uint64_t position_ = 0;
  std::optional<Tensor> tensor_;
  std::shared_ptr<const Tensor> sizes_;
};

}  // namespace tenfold
