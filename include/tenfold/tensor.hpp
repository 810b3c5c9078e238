#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <ostream>
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
///     tenfold::Tensor w = tenfold::Tensor::from<float>({0, 1, 2, 3, 4, 5}, {2, 3});
///     w.at<float>(1, 2);                     // 5; T must match the dtype
///     w[1][2].item<double>();                // 5, converted
///     for (float value : w.span<float>()) sum += value;
///
/// Thread safety: copies may be used from any thread. The elements are not synchronised.
class TENFOLD_API Tensor {
 public:
  /// Creates an empty tensor, float32 [0], without allocating memory.
  Tensor() noexcept = default;
  /// Shares the bytes.
  Tensor(const Tensor&) = default;
  /// Moves the tensor; `other` becomes a default tensor.
  Tensor(Tensor&& other) noexcept { swap(other); }
  /// Assigns a copy of a tensor, or a moved one.
  Tensor& operator=(Tensor other) noexcept {
    swap(other);
    return *this;
  }
  /// Releases the bytes if this is the last tensor over them.
  ~Tensor() = default;

  /// A contiguous (row-major) tensor over the start of `buffer`.
  /// Throws Error(invalid_argument) on a negative length, overflow, or too small a buffer.
  Tensor(DType dtype, Shape shape, Buffer buffer);

  /// A strided view of `buffer` from `offset_bytes` on. Strides count elements. Throws
  /// Error(invalid_argument) for a negative length or stride, for a number of strides other than
  /// the number of dimensions, on overflow, or if any element would be outside the buffer.
  Tensor(DType dtype, Shape shape, Shape strides, Buffer buffer, std::uint64_t offset_bytes);

  /// A contiguous tensor of zeros on the heap. Throws what nbytes_of() throws.
  static Tensor zeros(DType dtype, Shape shape);

  /// A copy of `values` with the given shape. Throws Error(invalid_argument) if their number does
  /// not match the shape.
  template <Element T>
  static Tensor from(std::span<const T> values, Shape shape) {
    return copy_of(dtype_of<T>(), std::move(shape), values.data(), values.size_bytes());
  }
  /// A 1-d copy of `values`.
  template <Element T>
  static Tensor from(std::span<const T> values) {
    return from(values, {static_cast<std::int64_t>(values.size())});
  }
  /// A copy of `values` with the given shape.
  template <Element T>
  static Tensor from(const std::vector<T>& values, Shape shape) {
    if constexpr (std::same_as<T, bool>) {  // whose elements are bits
      const std::vector<std::uint8_t> bytes(values.begin(), values.end());
      return copy_of(DType::bool_, std::move(shape), bytes.data(), bytes.size());
    } else {
      return from(std::span<const T>(values), std::move(shape));
    }
  }
  /// A 1-d copy of `values`.
  template <Element T>
  static Tensor from(const std::vector<T>& values) {
    return from(values, {static_cast<std::int64_t>(values.size())});
  }
  /// A copy of `values` with the given shape: Tensor::from<float>({1, 2, 3, 4}, {2, 2}).
  template <Element T>
  static Tensor from(std::initializer_list<T> values, Shape shape) {
    return from(std::span<const T>(values.begin(), values.size()), std::move(shape));
  }
  /// A 1-d copy of `values`: Tensor::from<std::int64_t>({5, 7}).
  template <Element T>
  static Tensor from(std::initializer_list<T> values) {
    return from(std::span<const T>(values.begin(), values.size()));
  }
  /// A 0-d tensor that holds `value`.
  template <Element T>
  static Tensor scalar(T value) {
    return from(std::span<const T>(&value, 1), {});
  }

  /// The type of the elements.
  DType dtype() const noexcept { return dtype_; }
  /// The lengths of the dimensions.
  const Shape& shape() const& noexcept { return is_default() ? default_shape() : shape_; }
  /// Overload for temporaries, as in `for (n : td.at("w").shape())`: returns the shape by value.
  Shape shape() && { return is_default() ? default_shape() : std::move(shape_); }
  /// The distance between consecutive indices of each dimension, in elements.
  const Shape& strides() const& noexcept { return is_default() ? default_strides() : strides_; }
  /// Overload for temporaries: returns the strides by value.
  Shape strides() && { return is_default() ? default_strides() : std::move(strides_); }
  /// The number of dimensions.
  std::int64_t ndim() const noexcept { return static_cast<std::int64_t>(shape().size()); }
  /// The length of dimension `dim`; a negative `dim` counts from the end (-1 is the last
  /// dimension). Throws Error(invalid_argument) if `dim` is out of range.
  std::int64_t size(std::int64_t dim) const;
  /// The number of elements.
  std::int64_t numel() const noexcept { return numel_; }
  /// The size of an element in bytes.
  std::size_t itemsize() const noexcept { return tenfold::itemsize(dtype_); }
  /// The size in bytes of a contiguous copy: numel() * itemsize().
  std::uint64_t nbytes() const noexcept;
  /// True if the elements are stored in row-major order without gaps.
  bool is_contiguous() const noexcept;

  /// The buffer that owns the bytes; it may extend beyond this view.
  const Buffer& buffer() const noexcept { return buffer_; }
  /// The offset of the first element in buffer().
  std::uint64_t offset_bytes() const noexcept { return offset_bytes_; }

  /// The address of the first element; null or meaningless if numel() is 0.
  const std::byte* raw_data() const noexcept TENFOLD_LIFETIMEBOUND {
    return buffer_.data() == nullptr ? nullptr : buffer_.data() + offset_bytes_;
  }
  /// As raw_data(), for writing. Throws Error(invalid_argument) if the tensor is read-only.
  std::byte* mutable_raw_data() const TENFOLD_LIFETIMEBOUND {
    check_writable();
    return buffer_.data() == nullptr ? nullptr : buffer_.mutable_data() + offset_bytes_;
  }

  /// The bytes of all elements in row-major order. Throws Error(invalid_argument) unless
  /// contiguous.
  std::span<const std::byte> bytes() const& TENFOLD_LIFETIMEBOUND {
    check_contiguous();
    return {raw_data(), static_cast<std::size_t>(nbytes())};
  }
  /// Deleted for temporaries, as span() is.
  std::span<const std::byte> bytes() const&& = delete;
  /// As bytes(), for writing. Also throws Error(invalid_argument) if the tensor is read-only.
  std::span<std::byte> mutable_bytes() const& TENFOLD_LIFETIMEBOUND {
    check_contiguous();
    return {mutable_raw_data(), static_cast<std::size_t>(nbytes())};
  }
  /// Deleted for temporaries, as span() is.
  std::span<std::byte> mutable_bytes() const&& = delete;

  /// The address of the first element, as a pointer to T (float, std::int64_t, Half, ...). Throws
  /// Error(invalid_argument) naming both dtypes if T does not match dtype().
  template <Element T>
  const T* data() const TENFOLD_LIFETIMEBOUND {
    check_type(dtype_of<T>());
    return reinterpret_cast<const T*>(raw_data());
  }

  /// As data(), for writing. Also throws Error(invalid_argument) if the tensor is read-only.
  template <Element T>
  T* mutable_data() const TENFOLD_LIFETIMEBOUND {
    check_type(dtype_of<T>());
    return reinterpret_cast<T*>(mutable_raw_data());
  }

  /// All elements in row-major order. Throws Error(invalid_argument) unless the tensor is
  /// contiguous and T matches dtype().
  template <Element T>
  std::span<const T> span() const& TENFOLD_LIFETIMEBOUND {
    check_contiguous();
    return {data<T>(), static_cast<std::size_t>(numel_)};
  }
  /// Deleted for temporaries: `for (float v : td.at("w").span<float>())` could read memory released
  /// with the temporary. Store the tensor in a variable first.
  template <Element T>
  std::span<const T> span() const&& = delete;

  /// The element at an index of each dimension: w.at<float>(1, 2). Throws Error(invalid_argument)
  /// if T does not match dtype(), the number of indices is not ndim(), or an index is out of range.
  template <Element T, std::integral... Index>
  T at(Index... index) const {
    check_type(dtype_of<T>());
    const std::array<std::int64_t, sizeof...(Index)> all = {static_cast<std::int64_t>(index)...};
    return read<T>(address_of(all));
  }

  /// The only element, converted to T as torch's `.to(dtype)` does. Throws Error(invalid_argument)
  /// if numel() is not 1. Also throws it if T is an integer type and the truncated value is out of
  /// its range, or if T is a real float type in which a finite value becomes infinite or NaN.
  /// Throws Error(unsupported) for a complex number if T is real, and for float4_e2m1fn_x2.
  template <Element T>
  T item() const {
    alignas(T) std::array<std::byte, sizeof(T)> bytes{};
    read_item(dtype_of<T>(), bytes.data());
    return read<T>(bytes.data());
  }

  /// The same elements, contiguous: this tensor if it is contiguous, otherwise clone().
  Tensor contiguous() const;
  /// A contiguous copy on the heap. Throws std::bad_alloc.
  Tensor clone() const;

  /// A view of row `index` of dimension 0. Throws Error(invalid_argument) if the tensor is 0-d or
  /// `index` is out of range.
  Tensor select(std::int64_t index) const;
  /// As select(), but a negative index counts from the end (-1 is the last row).
  Tensor operator[](std::int64_t index) const;

  /// A view of rows [begin, end) of dimension 0. Throws Error(invalid_argument) if the tensor is
  /// 0-d or the range is invalid.
  Tensor narrow(std::int64_t begin, std::int64_t end) const;

 private:
  void swap(Tensor& other) noexcept {
    std::swap(dtype_, other.dtype_);
    shape_.swap(other.shape_);
    strides_.swap(other.strides_);
    std::swap(buffer_, other.buffer_);
    std::swap(offset_bytes_, other.offset_bytes_);
    std::swap(numel_, other.numel_);
  }
  /// True for Tensor(), because any other tensor with an empty shape_ has one element.
  bool is_default() const noexcept { return shape_.empty() && numel_ == 0; }
  static const Shape& default_shape() noexcept;
  static const Shape& default_strides() noexcept;
  void check_type(DType wanted) const;
  void check_writable() const {
    if (!buffer_.writable()) fail_read_only();
  }
  [[noreturn]] void fail_read_only() const;
  void check_contiguous() const;
  const std::byte* address_of(std::span<const std::int64_t> index) const;
  void read_item(DType wanted, std::byte* destination) const;
  template <class T>
  static T read(const std::byte* bytes) noexcept {
    if constexpr (std::same_as<T, bool>) {
      return *bytes != std::byte{};
    } else {
      T value;
      std::memcpy(&value, bytes, sizeof(T));
      return value;
    }
  }
  static Tensor copy_of(DType dtype, Shape shape, const void* bytes, std::size_t size_bytes);

  DType dtype_ = DType::float32;
  Shape shape_;    ///< empty in a default tensor, although shape() is [0]
  Shape strides_;  ///< empty in a default tensor, although strides() is [1]
  Buffer buffer_;
  std::uint64_t offset_bytes_ = 0;
  std::int64_t numel_ = 0;
};

/// Writes the elements, dtype and shape: "tensor([0, 1], float32 [2])". If there are more than 100
/// elements, it writes the first and last three of each dimension, and at most 1000 elements.
TENFOLD_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// The strides (in elements) of a row-major tensor of that shape, as torch computes them. Throws
/// what numel_of() throws.
TENFOLD_API Shape contiguous_strides(const Shape& shape);

/// The number of elements of a tensor of that shape. Throws Error(invalid_argument) on a negative
/// length, or if the product of the nonzero lengths overflows.
TENFOLD_API std::int64_t numel_of(const Shape& shape);

/// The size in bytes of a contiguous tensor. Throws what numel_of() throws, and
/// Error(invalid_argument) for more than 2^63 - 1 bytes.
TENFOLD_API std::uint64_t nbytes_of(DType dtype, const Shape& shape);

}  // namespace tenfold
