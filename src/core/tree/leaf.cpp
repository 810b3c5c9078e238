#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/leaf.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tensor/strided_copy.hpp"
#include "core/tree/leaf_source.hpp"

namespace tenfold {
namespace {

/// The total number of elements of all components. `where` starts the message.
std::int64_t numel_of_components(const Tensor& sizes, ErrorCode code, const base::Where& where) {
  if (sizes.dtype() != DType::int64 || sizes.ndim() != 2) {
    throw base::fail(code, where)
        .part("sizes of a nested tensor")
        .expected("int64 of two dimensions")
        .found(to_string(sizes.dtype()), " ", base::list_text(sizes.shape()));
  }
  if (const auto total = nested_numel(sizes.contiguous())) {
    return static_cast<std::int64_t>(*total);
  }
  throw base::fail(code, where)
      .part("sizes of a nested tensor")
      .expected("lengths of at least 0 whose products and their sum fit 63 bits");
}

/// Leaf::read for a strided tensor in memory. The range may begin or end inside an element.
void read_strided(const Tensor& tensor, std::uint64_t offset_bytes, std::span<std::byte> into) {
  const std::uint64_t item_bytes = tensor.itemsize();
  while (!into.empty()) {
    const auto element = static_cast<std::int64_t>(offset_bytes / item_bytes);
    const std::uint64_t within = offset_bytes % item_bytes;
    std::size_t taken = 0;
    if (within == 0 && into.size() >= item_bytes) {
      const std::size_t count = into.size() / item_bytes;
      copy_to_contiguous(tensor, element, element + static_cast<std::int64_t>(count), into.data());
      taken = count * item_bytes;
    } else {
      std::array<std::byte, 16> one{};
      copy_to_contiguous(tensor, element, element + 1, one.data());
      taken = std::min<std::size_t>(into.size(), item_bytes - within);
      std::memcpy(into.data(), one.data() + within, taken);
    }
    into = into.subspan(taken);
    offset_bytes += taken;
  }
}

}  // namespace

std::optional<std::uint64_t> nested_numel(const Tensor& sizes) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  const auto components = static_cast<std::uint64_t>(sizes.shape()[0]);
  const auto dimensions = static_cast<std::size_t>(sizes.shape()[1]);
  const std::int64_t* lengths = sizes.data<std::int64_t>();
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < components; ++i) {
    std::uint64_t product = 1;
    for (std::size_t k = 0; k < dimensions; ++k) {
      const std::int64_t length = *lengths++;
      if (length < 0) return std::nullopt;
      const auto next = base::checked_mul(product, static_cast<std::uint64_t>(length));
      if (!next || *next > kMax) return std::nullopt;
      product = *next;
    }
    const auto sum = base::checked_add(total, product);
    if (!sum || *sum > kMax) return std::nullopt;
    total = *sum;
  }
  return total;
}

Leaf::Leaf(Tensor tensor) : tensor_(std::move(tensor)) {}

Leaf::Leaf(DType dtype, Shape shape, std::shared_ptr<LeafSource> source, std::uint64_t position)
    : dtype_(dtype), shape_(std::move(shape)), source_(std::move(source)), position_(position) {}

Leaf Leaf::nested(Tensor values, Tensor sizes) {
  if (values.ndim() != 1) {
    throw base::invalid_argument()
        .part("nested tensor: values")
        .expected("one dimension")
        .found("shape ", base::list_text(values.shape()));
  }
  const std::int64_t expected =
      numel_of_components(sizes, ErrorCode::invalid_argument, base::Where("", "nested tensor"));
  if (expected != values.numel()) {
    throw base::invalid_argument()
        .part("nested tensor")
        .problem("values do not fit the sizes")
        .expected(expected, " elements")
        .found(values.numel());
  }
  Leaf leaf(std::move(values));
  leaf.nested_ = true;
  leaf.shape_ = sizes.shape();
  leaf.sizes_ = std::make_shared<const Tensor>(sizes.contiguous());
  return leaf;
}

std::uint64_t Leaf::nbytes() const {
  if (tensor_.has_value()) return tensor_->nbytes();
  if (!nested_) return nbytes_of(dtype_, shape_);
  return nbytes_of(dtype_,
                   {numel_of_components(sizes(), ErrorCode::corrupt, source_->where(*this))});
}

Tensor Leaf::tensor() const {
  if (tensor_.has_value()) return *tensor_;
  if (in_storage_) {
    LeafSource::Part part = source_->map_storage(*this);
    return {dtype_, shape_, contiguous_strides(shape_), std::move(part.storage), part.offset_bytes};
  }
  if (!nested_) return {dtype_, shape_, source_->map(*this)};
  const std::int64_t numel =
      numel_of_components(sizes(), ErrorCode::corrupt, source_->where(*this));
  return {dtype_, {numel}, source_->map(*this)};
}

void Leaf::read(std::uint64_t offset_bytes, std::span<std::byte> destination) const {
  const std::uint64_t size_bytes = nbytes();
  if (!base::range_fits(offset_bytes, destination.size(), size_bytes)) {
    throw base::invalid_argument()
        .part("tensor")
        .problem("read of ", destination.size(), " bytes at offset ", offset_bytes, " does not fit")
        .expected("an end within ", size_bytes, " bytes");
  }
  if (destination.empty()) return;
  if (!tensor_.has_value()) {
    source_->read(*this, offset_bytes, destination);
  } else if (tensor_->is_contiguous()) {
    std::memcpy(destination.data(), tensor_->raw_data() + offset_bytes, destination.size());
  } else {
    read_strided(*tensor_, offset_bytes, destination);
  }
}

Tensor Leaf::sizes() const {
  if (!nested_) {
    throw base::invalid_argument(source_ ? source_->where(*this) : base::Where("", "tensor"))
        .problem("not a nested tensor: it has no component sizes");
  }
  return sizes_ ? *sizes_ : source_->nested_sizes(*this);
}

}  // namespace tenfold
