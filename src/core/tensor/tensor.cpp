#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/tensor.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/element_text.hpp"
#include "core/tensor/strided_copy.hpp"

namespace tenfold {
namespace {

constexpr auto kMaxInt64 = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

Error fail() { return base::invalid_argument().part("tensor"); }

/// The product of the lengths, with 0 counted as 1. Strides are products of the lengths, so a
/// length of 0 must not hide that the product of the other lengths overflows.
std::uint64_t checked_extent(const Shape& shape) {
  std::uint64_t extent = 1;
  for (const std::int64_t length : shape) {
    if (length < 0) {
      throw fail().problem("shape ", base::list_text(shape), " has a negative length");
    }
    if (length == 0) continue;
    const auto product = base::checked_mul(extent, static_cast<std::uint64_t>(length));
    if (!product || *product > kMaxInt64) {
      throw fail()
          .problem("shape ", base::list_text(shape), " is too large")
          .expected("at most 2^63 - 1 elements");
    }
    extent = *product;
  }
  return extent;
}

/// True if the element, a real number, is neither infinite nor NaN.
bool is_finite(DType dtype, const std::byte* bytes) {
  double number = 0;
  cast_elements(dtype, bytes, DType::float64, reinterpret_cast<std::byte*>(&number), 1);
  return std::isfinite(number);
}

/// True if the real number, rounded toward zero, is in the range of the integer dtype `wanted`.
bool integer_fits(DType dtype, const std::byte* bytes, DType wanted) {
  const int bits = static_cast<int>(8 * itemsize(wanted));
  const bool is_signed = wanted >= DType::int8;
  if (dtype == DType::uint64) {
    std::uint64_t number = 0;
    std::memcpy(&number, bytes, sizeof number);
    return static_cast<int>(std::bit_width(number)) <= bits - (is_signed ? 1 : 0);
  }
  if (is_integer(dtype) || dtype == DType::bool_) {
    std::int64_t number = 0;
    cast_elements(dtype, bytes, DType::int64, reinterpret_cast<std::byte*>(&number), 1);
    if (!is_signed)
      return number >= 0 &&
             static_cast<int>(std::bit_width(static_cast<std::uint64_t>(number))) <= bits;
    const std::int64_t largest = std::numeric_limits<std::int64_t>::max() >> (64 - bits);
    return number >= -largest - 1 && number <= largest;
  }
  if (!is_floating_point(dtype)) return true;  // cast_elements() throws for these dtypes
  double number = 0;
  cast_elements(dtype, bytes, DType::float64, reinterpret_cast<std::byte*>(&number), 1);
  const double limit = std::ldexp(1.0, bits - (is_signed ? 1 : 0));
  number = std::trunc(number);  // NaN fails both comparisons
  return number < limit && number >= (is_signed ? -limit : 0.0);
}

bool has_zero(const Shape& shape) noexcept {
  for (const std::int64_t length : shape) {
    if (length == 0) return true;
  }
  return false;
}

}  // namespace

std::uint64_t spanned_bytes(DType dtype, const Shape& shape, const Shape& strides) {
  if (strides.size() != shape.size()) {
    throw fail()
        .problem("strides ", base::list_text(strides), " do not fit shape ", base::list_text(shape))
        .expected("one stride per dimension");
  }
  std::uint64_t last_element = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (strides[i] < 0) {
      throw fail().problem("strides ", base::list_text(strides), " include a negative stride");
    }
    if (shape[i] <= 1) continue;
    const auto reach = base::checked_mul(static_cast<std::uint64_t>(shape[i] - 1),
                                         static_cast<std::uint64_t>(strides[i]));
    const auto sum = reach ? base::checked_add(last_element, *reach) : std::nullopt;
    if (!sum || *sum >= kMaxInt64) {
      throw fail().problem("strides ", base::list_text(strides), " of shape ",
                           base::list_text(shape), " reach past 2^63 - 1 elements");
    }
    last_element = *sum;
  }
  if (has_zero(shape)) return 0;
  const auto bytes = base::checked_mul(last_element + 1, itemsize(dtype));
  if (!bytes) throw fail().problem("strides ", base::list_text(strides), " reach past 2^64 bytes");
  return *bytes;
}

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
    throw fail()
        .problem("shape ", base::list_text(shape), " of ", to_string(dtype), " is too large")
        .expected("at most 2^63 - 1 bytes");
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
    throw fail()
        .problem("buffer is too small for shape ", base::list_text(shape_), " of ",
                 to_string(dtype_))
        .expected(needed, " bytes")
        .found(buffer_.size_bytes());
  }
}

Tensor::Tensor(DType dtype, Shape shape, Shape strides, Buffer buffer, std::uint64_t offset_bytes)
    : dtype_(dtype),
      shape_(std::move(shape)),
      strides_(std::move(strides)),
      buffer_(std::move(buffer)),
      offset_bytes_(offset_bytes),
      numel_(numel_of(shape_)) {
  // Check the size of a contiguous copy, which a stride of 0 can make larger than the buffer.
  nbytes_of(dtype_, shape_);
  const std::uint64_t needed = spanned_bytes(dtype_, shape_, strides_);
  if (!base::range_fits(offset_bytes_, needed, buffer_.size_bytes())) {
    throw fail()
        .problem("view of shape ", base::list_text(shape_), " and strides ",
                 base::list_text(strides_), " at offset ", offset_bytes_,
                 " reaches past the end of its buffer")
        .expected("an end within ", buffer_.size_bytes(), " bytes")
        .found("an end ", needed, " bytes after the offset");
  }
}

Tensor Tensor::zeros(DType dtype, Shape shape) {
  const std::uint64_t size_bytes = nbytes_of(dtype, shape);
  return {dtype, std::move(shape), Buffer::allocate(size_bytes)};
}

Tensor Tensor::copy_of(DType dtype, Shape shape, const void* bytes, std::size_t size_bytes) {
  if (nbytes_of(dtype, shape) != size_bytes) {
    throw fail()
        .problem("shape ", base::list_text(shape), " does not fit the values")
        .expected(size_bytes / tenfold::itemsize(dtype), " elements")
        .found(numel_of(shape));
  }
  Tensor tensor = zeros(dtype, std::move(shape));
  if (size_bytes != 0) std::memcpy(tensor.mutable_raw_data(), bytes, size_bytes);
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

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::clone() const {
  Tensor copy = zeros(dtype_, shape());
  if (numel_ > 0) copy_to_contiguous(*this, 0, numel_, copy.mutable_raw_data());
  return copy;
}

Tensor Tensor::select(std::int64_t index) const {
  if (shape().empty()) throw fail().problem("a tensor without dimensions has no rows");
  if (index < 0 || index >= shape()[0]) {
    throw fail()
        .problem("row ", index, " is out of range")
        .expected("at least 0 and less than ", shape()[0]);
  }
  Tensor row = narrow(index, index + 1);
  row.shape_.erase(row.shape_.begin());
  row.strides_.erase(row.strides_.begin());
  return row;
}

Tensor Tensor::operator[](std::int64_t index) const {
  if (index >= 0 || shape().empty()) return select(index);
  const std::int64_t length = shape()[0];
  if (index < -length) {
    throw fail()
        .problem("row ", index, " is out of range")
        .expected("at least ", -length, " and less than ", length);
  }
  return select(index + length);
}

std::int64_t Tensor::size(std::int64_t dim) const {
  const std::int64_t wanted = dim < 0 ? dim + ndim() : dim;
  if (wanted < 0 || wanted >= ndim()) {
    throw fail()
        .problem("dimension ", dim, " is out of range")
        .expected("one of the ", ndim(), " dimensions of shape ", base::list_text(shape()));
  }
  return shape()[static_cast<std::size_t>(wanted)];
}

Tensor Tensor::narrow(std::int64_t begin, std::int64_t end) const {
  if (shape().empty()) throw fail().problem("a tensor without dimensions has no rows");
  if (begin < 0 || end < begin || end > shape()[0]) {
    throw fail()
        .problem("rows [", begin, ", ", end, ") are out of range")
        .expected("a range within [0, ", shape()[0], ")");
  }
  Tensor rows = *this;
  if (is_default()) return rows;
  rows.shape_[0] = end - begin;
  rows.numel_ = numel_of(rows.shape_);
  // The offset of a tensor without elements has no meaning, but must not be outside the buffer.
  if (rows.numel_ > 0) {
    rows.offset_bytes_ +=
        static_cast<std::uint64_t>(begin) * static_cast<std::uint64_t>(strides_[0]) * itemsize();
  }
  return rows;
}

const std::byte* Tensor::address_of(std::span<const std::int64_t> index) const {
  const Shape& lengths = shape();
  if (index.size() != lengths.size()) {
    throw fail()
        .part("index ", base::list_text(index))
        .expected("one number for each dimension of shape ", base::list_text(lengths))
        .found(index.size());
  }
  std::uint64_t element = 0;
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] < 0 || index[i] >= lengths[i]) {
      throw fail().problem("index ", base::list_text(index), " is out of range of shape ",
                           base::list_text(lengths));
    }
    element += static_cast<std::uint64_t>(index[i]) * static_cast<std::uint64_t>(strides()[i]);
  }
  return raw_data() + element * itemsize();
}

void Tensor::read_item(DType wanted, std::byte* into) const {
  if (numel_ != 1) {
    throw fail()
        .part("item")
        .expected("one element")
        .found(numel_, " (shape ", base::list_text(shape()), ")");
  }
  const std::byte* bytes = raw_data();
  if (is_integer(wanted) && wanted != dtype_ && !is_complex(dtype_)) {
    if (!integer_fits(dtype_, bytes, wanted)) {
      throw fail().part("item").problem("the value ", element_text(dtype_, bytes), " does not fit ",
                                        to_string(wanted));
    }
  }
  cast_elements(dtype_, bytes, wanted, into, 1);
  if (is_floating_point(wanted) && !is_finite(wanted, into) && is_finite(dtype_, bytes)) {
    throw fail().part("item").problem("the value ", element_text(dtype_, bytes), " does not fit ",
                                      to_string(wanted));
  }
}

void Tensor::check_type(DType wanted) const {
  if (wanted == dtype_) return;
  throw fail()
      .problem("elements of another dtype")
      .expected(to_string(wanted))
      .found(to_string(dtype_));
}

void Tensor::fail_read_only() const { throw fail().problem("tensor is read-only"); }

void Tensor::check_contiguous() const {
  if (is_contiguous()) return;
  throw fail()
      .problem("not contiguous: shape ", base::list_text(shape_))
      .expected("strides ", base::list_text(contiguous_strides(shape_)))
      .found(base::list_text(strides_))
      .remedy("contiguous() makes a copy");
}

}  // namespace tenfold
