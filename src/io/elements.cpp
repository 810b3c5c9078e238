#include "io/elements.hpp"

#include <tenfold/error.hpp>
#include <tenfold/inspect.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <string>
#include <vector>

#include "base/fail.hpp"
#include "core/tensor/cast.hpp"
#include "core/tensor/element_text.hpp"
#include "io/check_supported.hpp"

namespace tenfold {

std::uint64_t drop_repeats(std::initializer_list<Leaf*> leaves) {
  for (const Leaf* leaf : leaves) {
    if (!leaf->in_memory() || leaf->is_nested()) return 1;
  }
  Shape shape = (*leaves.begin())->shape();
  std::uint64_t repeats = 1;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    const bool is_expanded = std::ranges::all_of(
        leaves, [&](const Leaf* leaf) { return leaf->tensor().strides()[dim] == 0; });
    if (shape[dim] <= 1 || !is_expanded) continue;
    repeats *= static_cast<std::uint64_t>(shape[dim]);
    shape[dim] = 1;
  }
  if (repeats == 1) return 1;
  for (Leaf* leaf : leaves) {
    const Tensor tensor = leaf->tensor();
    *leaf = Tensor(tensor.dtype(), shape, tensor.strides(), tensor.buffer(), tensor.offset_bytes());
  }
  return repeats;
}

std::size_t doubles_per_element(DType dtype) noexcept {
  return dtype == DType::float4_e2m1fn_x2 ? 2 : 1;
}

std::span<double> to_doubles(DType dtype, std::span<const std::byte> bytes,
                             std::span<double> values) {
  const std::size_t count = bytes.size() / itemsize(dtype);
  if (dtype == DType::float4_e2m1fn_x2) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto pair = std::to_integer<unsigned>(bytes[i]);
      values[2 * i] = float4_value(pair & 15U);
      values[2 * i + 1] = float4_value(pair >> 4);
    }
  } else if (is_complex(dtype)) {
    std::vector<std::complex<double>> numbers(count);
    cast_elements(dtype, bytes.data(), DType::complex128,
                  reinterpret_cast<std::byte*>(numbers.data()), count);
    for (std::size_t i = 0; i < count; ++i) {
      // std::abs(NaN + inf j) is infinite, but a number with a NaN part counts as NaN, as in torch.
      const bool nan = std::isnan(numbers[i].real()) || std::isnan(numbers[i].imag());
      values[i] = nan ? std::nan("") : std::abs(numbers[i]);
    }
  } else {
    cast_elements(dtype, bytes.data(), DType::float64, reinterpret_cast<std::byte*>(values.data()),
                  count);
  }
  return values.first(count * doubles_per_element(dtype));
}

std::vector<std::string> element_texts(const Leaf& leaf, std::uint64_t begin, std::uint64_t end) {
  const std::size_t item = itemsize(leaf.dtype());
  const std::uint64_t num_elements = leaf.nbytes() / item;
  if (begin > end || end > num_elements) {
    throw base::invalid_argument()
        .part("elements")
        .problem("out of range")
        .expected("0 <= begin <= end <= ", num_elements)
        .found("begin ", begin, " and end ", end);
  }
  require_whole(leaf);
  std::vector<std::byte> bytes(static_cast<std::size_t>((end - begin) * item));
  leaf.read(begin * item, bytes);
  return element_texts(leaf.dtype(), bytes);
}

}  // namespace tenfold
