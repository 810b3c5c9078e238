#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "formats/torch_file/tensor.hpp"

namespace tenfold::detail::formats::torch_file {
namespace {

/// True if components of `sizes` [n, k] lie one after the other, each row-major.
bool is_packed(const Tensor& sizes, const Tensor& strides, const Tensor& offsets) {
  if (sizes.dtype() != DType::int64 || strides.dtype() != DType::int64 ||
      offsets.dtype() != DType::int64 || sizes.ndim() != 2 || sizes.shape() != strides.shape() ||
      offsets.shape() != Shape{sizes.shape()[0]}) {
    return false;
  }
  const auto width = static_cast<std::size_t>(sizes.shape()[1]);
  const auto* size = sizes.data<std::int64_t>();
  const auto* stride = strides.data<std::int64_t>();
  const auto* offset = offsets.data<std::int64_t>();
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < sizes.shape()[0]; ++i, size += width, stride += width) {
    const Shape shape(size, size + width);
    if (offset[i] != end) return false;
    try {
      end = numel_of({end + numel_of(shape)});
    } catch (const Error&) {
      return false;
    }
    std::int64_t expected = 1;
    for (std::size_t d = width; d-- > 0; expected *= shape[d]) {
      if (shape[d] > 1 && stride[d] != expected) return false;
    }
  }
  return true;
}

}  // namespace

Leaf nested_tensor(const Pickle& pickle, Tensors& tensors, const Pickle::Call& call) {
  pickle.require_arguments(call, 4, 4);
  std::vector<Tensor> parts;
  for (const std::uint32_t part : call.arguments) {
    const auto inner = pickle.call(part);
    const std::optional<Leaf> leaf = inner ? tensors.leaf(part, *inner) : std::nullopt;
    if (!leaf) pickle.corrupt("nested tensor: expected tensors, found " + pickle.describe(part));
    parts.push_back(leaf->tensor().contiguous());
  }
  if (!is_packed(parts[1], parts[2], parts[3])) {
    pickle.unsupported(
        "nested tensor: expected components one after the other, found a view of some; save a "
        "contiguous() one");
  }
  try {
    return Leaf::nested(parts[0], parts[1]);
  } catch (const Error& error) {
    pickle.corrupt(error.what());
  }
}

}  // namespace tenfold::detail::formats::torch_file
