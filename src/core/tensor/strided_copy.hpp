#pragma once

#include <cstddef>
#include <cstdint>

#include <tenfold/tensor.hpp>

namespace tenfold {

/// Copies the elements [begin, end) of `from`, in row-major order, to contiguous bytes. `to` has
/// (end - begin) * itemsize() bytes and does not overlap `from`. Throws Error(invalid_argument)
/// unless 0 <= begin <= end <= numel().
void copy_to_contiguous(const Tensor& from, std::int64_t begin, std::int64_t end, std::byte* to);

/// The inverse: copies contiguous bytes to the elements [begin, end) of `to`. Throws
/// Error(invalid_argument) as above, and if `to` is read-only.
void copy_from_contiguous(const std::byte* from, const Tensor& to, std::int64_t begin,
                          std::int64_t end);

}  // namespace tenfold
