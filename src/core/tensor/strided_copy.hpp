#pragma once

#include <cstddef>
#include <cstdint>

#include <tenfold/tensor.hpp>

#include "base/fail.hpp"

namespace tenfold {

/// Bytes from the first element to the end of the last; 0 if there are no elements. Throws
/// Error(invalid_argument) if a stride is negative, `strides` and `shape` differ in length, or the
/// number of bytes is too large.
std::uint64_t spanned_bytes(DType dtype, const Shape& shape, const Shape& strides);
inline std::uint64_t spanned_bytes(const Tensor& tensor) {
  return spanned_bytes(tensor.dtype(), tensor.shape(), tensor.strides());
}

/// Copies the elements [begin, end) of `from`, in row-major order, to contiguous bytes. `to` has
/// (end - begin) * itemsize() bytes and does not overlap `from`. Throws Error(invalid_argument)
/// unless 0 <= begin <= end <= numel().
void copy_to_contiguous(const Tensor& from, std::int64_t begin, std::int64_t end, std::byte* to);

/// The inverse of copy_to_contiguous(): copies (end - begin) * itemsize() contiguous bytes to the
/// elements [begin, end) of `to`. Throws Error(invalid_argument) unless
/// 0 <= begin <= end <= numel(), or if `to` is read-only.
void copy_from_contiguous(const std::byte* from, const Tensor& to, std::int64_t begin,
                          std::int64_t end);

/// Like Tensor::contiguous(), for a tensor that may be from the file that `where` names. If `where`
/// has a path, throws Error(unsupported) if the copy would be over 16 MiB larger than the storage
/// of the tensor. Without this limit, a file could cause an allocation of any size, by a large
/// shape with strides of 0.
Tensor contiguous_of_file(const Tensor& tensor, const base::Where& where);

}  // namespace tenfold
