#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tenfold/buffer.hpp>
#include <tenfold/dtype.hpp>

namespace tenfold {

/// Lengths of the dimensions, or strides in elements; empty for a 0-d tensor.
using Shape = std::vector<std::int64_t>;

/// A strided view of a Buffer: dtype, shape, strides and the offset of the first element.
/// Copying shares the bytes. All elements of a Tensor are inside its buffer.
///
/// Thread safety: as Buffer.
class TENFOLD_API Tensor {
 public:
  /// float32 of shape [0]; allocates nothing.
  Tensor() noexcept = default;

  /// A contiguous (row-major) tensor over the start of `buffer`.
  /// Throws Error(invalid_argument) on a negative length, overflow, or too small a buffer.
  Tensor(DType dtype, Shape shape, Buffer buffer);

  /// A strided view; the first element starts `offset_bytes` into `buffer`. Strides count
  /// elements and are not negative. Throws Error(invalid_argument) if any element would be
  /// outside the buffer.
  Tensor(DType dtype, Shape shape, Shape strides, Buffer buffer, std::uint64_t offset_bytes);

  /// Zeros, on the heap.
  static Tensor zeros(DType dtype, Shape shape);

  /// A copy of `values` with the given shape (by default one dimension).
  template <class T>
  static Tensor from(std::span<const T> values, Shape shape);
  template <class T>
  static Tensor from(std::span<const T> values) {
    return from(values, {static_cast<std::int64_t>(values.size())});
  }

  DType dtype() const noexcept { return dtype_; }
  const Shape& shape() const& noexcept { return is_default() ? default_shape() : shape_; }
  const Shape& strides() const& noexcept { return is_default() ? default_strides() : strides_; }
  // By value for temporaries, as in `for (n : td.at("w").shape())`.
  Shape shape() && { return is_default() ? default_shape() : std::move(shape_); }
  Shape strides() && { return is_default() ? default_strides() : std::move(strides_); }
  std::int64_t ndim() const noexcept { return static_cast<std::int64_t>(shape().size()); }
  std::int64_t numel() const noexcept { return numel_; }
  std::size_t itemsize() const noexcept { return tenfold::itemsize(dtype_); }
  /// numel() * itemsize(): the bytes of a contiguous copy.
  std::uint64_t nbytes() const noexcept;
  bool is_contiguous() const noexcept;

  /// The buffer that owns the bytes; it may extend beyond this view.
  const Buffer& buffer() const noexcept { return buffer_; }
  std::uint64_t offset_bytes() const noexcept { return offset_bytes_; }

  /// The address of the first element; null or dangling-free but meaningless when numel() == 0.
  std::byte* raw_data() const noexcept TENFOLD_LIFETIMEBOUND {
    return buffer_.data() == nullptr ? nullptr : buffer_.data() + offset_bytes_;
  }

  /// The elements as T. Throws Error(invalid_argument) naming both dtypes if T is another type.
  template <class T>
  const T* data() const TENFOLD_LIFETIMEBOUND {
    check_type(dtype_of<T>());
    return reinterpret_cast<const T*>(raw_data());
  }

  /// As data(), for writing. Throws Error(invalid_argument) if the tensor is read-only.
  template <class T>
  T* mutable_data() const TENFOLD_LIFETIMEBOUND {
    check_type(dtype_of<T>());
    check_writable();
    return reinterpret_cast<T*>(raw_data());
  }

  /// All elements in row-major order. Throws Error(invalid_argument) unless contiguous.
  template <class T>
  std::span<const T> span() const& TENFOLD_LIFETIMEBOUND {
    check_contiguous();
    return {data<T>(), static_cast<std::size_t>(numel_)};
  }
  /// `for (float v : td.at("w").span<float>())` would read memory released with the temporary:
  /// store the tensor in a variable first.
  template <class T>
  std::span<const T> span() const&& = delete;

  /// The same elements, contiguous: this tensor if it already is, otherwise a copy on the heap.
  Tensor contiguous() const;

  /// Row `index` of dimension 0, a view. Throws Error(invalid_argument) if 0-d or out of range.
  Tensor select(std::int64_t index) const;

  /// Rows [begin, end) of dimension 0, a view. Throws Error(invalid_argument) if out of range.
  Tensor narrow(std::int64_t begin, std::int64_t end) const;

 private:
  /// A tensor without dimensions has an element.
  bool is_default() const noexcept { return shape_.empty() && numel_ == 0; }
  static const Shape& default_shape() noexcept;
  static const Shape& default_strides() noexcept;
  void check_type(DType wanted) const;
  void check_writable() const;
  void check_contiguous() const;
  static Tensor copy_of(DType dtype, Shape shape, const void* bytes, std::size_t size_bytes);

  DType dtype_ = DType::float32;
  Shape shape_;  ///< of a default tensor, which has one of [0], empty; so are its strides
  Shape strides_;
  Buffer buffer_;
  std::uint64_t offset_bytes_ = 0;
  std::int64_t numel_ = 0;
};

template <class T>
Tensor Tensor::from(std::span<const T> values, Shape shape) {
  return copy_of(dtype_of<T>(), std::move(shape), values.data(), values.size_bytes());
}

/// The strides (in elements) of a row-major tensor of that shape, as torch computes them.
TENFOLD_API Shape contiguous_strides(const Shape& shape);

/// The product of the lengths. Throws Error(invalid_argument) on a negative length or overflow.
TENFOLD_API std::int64_t numel_of(const Shape& shape);

/// The bytes of a contiguous tensor. Throws Error(invalid_argument) as numel_of.
TENFOLD_API std::uint64_t nbytes_of(DType dtype, const Shape& shape);

}  // namespace tenfold
