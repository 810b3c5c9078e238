#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/tensor.hpp>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "core/tensor/strided_copy.hpp"

namespace tenfold {
namespace {

constexpr auto kMaxInt64 = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "tensor: " + what);
}

/// The product of the lengths with 0 counted as 1. Strides are computed from it, so a shape with 0
/// elements must not hide an overflow.
std::uint64_t checked_extent(const Shape& shape) {
  std::uint64_t extent = 1;
  for (const std::int64_t length : shape) {
    if (length < 0) fail("shape " + base::list_text(shape) + " has a negative length");
    if (length == 0) continue;
    const auto product = base::checked_mul(extent, static_cast<std::uint64_t>(length));
    if (!product || *product > kMaxInt64) {
      fail("shape " + base::list_text(shape) + " is too large: expected at most 2^63 - 1 elements");
    }
    extent = *product;
  }
  return extent;
}

bool has_zero(const Shape& shape) noexcept {
  for (const std::int64_t length : shape) {
    if (length == 0) return true;
  }
  return false;
}

/// Bytes from the first element to the end of the last; 0 if there are no elements.
std::uint64_t spanned_bytes(DType dtype, const Shape& shape, const Shape& strides) {
  if (strides.size() != shape.size()) {
    fail("strides " + base::list_text(strides) + " do not fit shape " + base::list_text(shape) +
         ": expected one stride a dimension");
  }
  std::uint64_t last_element = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (strides[i] < 0) fail("strides " + base::list_text(strides) + " has a negative stride");
    if (shape[i] <= 1) continue;
    const auto reach = base::checked_mul(static_cast<std::uint64_t>(shape[i] - 1),
                                         static_cast<std::uint64_t>(strides[i]));
    const auto sum = reach ? base::checked_add(last_element, *reach) : std::nullopt;
    if (!sum || *sum >= kMaxInt64) {
      fail("strides " + base::list_text(strides) + " of shape " + base::list_text(shape) +
           " reach past 2^63 - 1 elements");
    }
    last_element = *sum;
  }
  if (has_zero(shape)) return 0;
  const auto bytes = base::checked_mul(last_element + 1, itemsize(dtype));
  if (!bytes) fail("strides " + base::list_text(strides) + " reach past 2^64 bytes");
  return *bytes;
}

}  // namespace

Shape contiguous_strides(const Shape& shape) {
  checked_extent(shape);
  Shape strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * (shape[i] > 1 ? shape[i] : 1);
  }
  return strides;
}

std::int64_t numel_of(const Shape& shape) {
  const std::uint64_t extent = checked_extent(shape);
  return has_zero(shape) ? 0 : static_cast<std::int64_t>(extent);
}

std::uint64_t nbytes_of(DType dtype, const Shape& shape) {
  const auto bytes =
      base::checked_mul(static_cast<std::uint64_t>(numel_of(shape)), itemsize(dtype));
  if (!bytes || *bytes > kMaxInt64) {
    fail("shape " + base::list_text(shape) + " of " + std::string(name(dtype)) +
         " is too large: expected at most 2^63 - 1 bytes");
  }
  return *bytes;
}

const Shape& Tensor::default_shape() noexcept {
  static const Shape shape = {0};
  return shape;
}

const Shape& Tensor::default_strides() noexcept {
  static const Shape strides = {1};
  return strides;
}

Tensor::Tensor(DType dtype, Shape shape, Buffer buffer)
    : dtype_(dtype),
      shape_(std::move(shape)),
      strides_(contiguous_strides(shape_)),
      buffer_(std::move(buffer)),
      numel_(numel_of(shape_)) {
  const std::uint64_t needed = nbytes_of(dtype_, shape_);
  if (needed > buffer_.size_bytes()) {
    fail("buffer is too small for shape " + base::list_text(shape_) + " of " +
         std::string(name(dtype_)) + ": expected " + std::to_string(needed) + " bytes, found " +
         std::to_string(buffer_.size_bytes()));
  }
}

Tensor::Tensor(DType dtype, Shape shape, Shape strides, Buffer buffer, std::uint64_t offset_bytes)
    : dtype_(dtype),
      shape_(std::move(shape)),
      strides_(std::move(strides)),
      buffer_(std::move(buffer)),
      offset_bytes_(offset_bytes),
      numel_(numel_of(shape_)) {
  // A stride of 0 repeats elements, so a contiguous copy may be larger than the buffer.
  nbytes_of(dtype_, shape_);
  const std::uint64_t needed = spanned_bytes(dtype_, shape_, strides_);
  if (!base::range_fits(offset_bytes_, needed, buffer_.size_bytes())) {
    fail("view of shape " + base::list_text(shape_) + " and strides " + base::list_text(strides_) +
         " at offset " + std::to_string(offset_bytes_) +
         " reaches past the end of its buffer: expected an end within " +
         std::to_string(buffer_.size_bytes()) + " bytes, found " + std::to_string(needed) +
         " bytes from the offset");
  }
}

Tensor Tensor::zeros(DType dtype, Shape shape) {
  const std::uint64_t size_bytes = nbytes_of(dtype, shape);
  return {dtype, std::move(shape), Buffer::allocate(size_bytes)};
}

Tensor Tensor::copy_of(DType dtype, Shape shape, const void* bytes, std::size_t size_bytes) {
  Tensor tensor = zeros(dtype, std::move(shape));
  if (tensor.nbytes() != size_bytes) {
    fail("shape " + base::list_text(tensor.shape()) + " does not fit the values: expected " +
         std::to_string(size_bytes / tensor.itemsize()) + " elements, found " +
         std::to_string(tensor.numel()));
  }
  if (size_bytes != 0) std::memcpy(tensor.raw_data(), bytes, size_bytes);
  return tensor;
}

std::uint64_t Tensor::nbytes() const noexcept {
  return static_cast<std::uint64_t>(numel_) * itemsize();
}

bool Tensor::is_contiguous() const noexcept {
  if (numel_ == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t i = shape_.size(); i-- > 0;) {
    if (shape_[i] == 1) continue;
    if (strides_[i] != expected) return false;
    expected *= shape_[i];
  }
  return true;
}

Tensor Tensor::contiguous() const {
  if (is_contiguous()) return *this;
  Tensor copy = zeros(dtype_, shape_);
  copy_to_contiguous(*this, 0, numel_, copy.raw_data());
  return copy;
}

Tensor Tensor::select(std::int64_t index) const {
  if (shape().empty()) fail("a tensor of no dimension has no rows");
  if (index < 0 || index >= shape()[0]) {
    fail("row " + std::to_string(index) + " is out of range: expected 0 to " +
         std::to_string(shape()[0] - 1) + " (" + std::to_string(shape()[0]) + " rows)");
  }
  Tensor row = narrow(index, index + 1);
  row.shape_.erase(row.shape_.begin());
  row.strides_.erase(row.strides_.begin());
  return row;
}

Tensor Tensor::narrow(std::int64_t begin, std::int64_t end) const {
  if (shape().empty()) fail("a tensor of no dimension has no rows");
  if (begin < 0 || end < begin || end > shape()[0]) {
    fail("rows [" + std::to_string(begin) + ", " + std::to_string(end) +
         ") are out of range: expected a range within [0, " + std::to_string(shape()[0]) + ")");
  }
  Tensor rows = *this;
  if (is_default()) return rows;
  rows.shape_[0] = end - begin;
  rows.numel_ = numel_of(rows.shape_);
  // Without elements the offset has no meaning, and must not point outside the buffer.
  if (rows.numel_ > 0) {
    rows.offset_bytes_ +=
        static_cast<std::uint64_t>(begin) * static_cast<std::uint64_t>(strides_[0]) * itemsize();
  }
  return rows;
}

void Tensor::check_type(DType wanted) const {
  if (wanted == dtype_) return;
  fail("elements of another dtype: expected " + std::string(name(wanted)) + ", found " +
       std::string(name(dtype_)));
}

void Tensor::check_writable() const {
  if (!buffer_.writable()) fail("tensor is read-only");
}

void Tensor::check_contiguous() const {
  if (is_contiguous()) return;
  fail("not contiguous: shape " + base::list_text(shape_) + ": expected strides " +
       base::list_text(contiguous_strides(shape_)) + ", found " + base::list_text(strides_) +
       "; contiguous() makes a copy");
}

}  // namespace tenfold
