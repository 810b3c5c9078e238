// Arbitrary component tensors of a sparse or jagged tensor. They are refused with an Error, or a
// program that trusts the indices stays within the dense tensor and within the values.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/tensordict.hpp>

#include "core/tree/sparse.hpp"
#include "fuzz/input.hpp"

namespace {

using namespace tenfold;

constexpr std::array<std::string_view, 6> kLayouts = {"sparse_coo", "sparse_csr", "sparse_csc",
                                                      "sparse_bsr", "sparse_bsc", kJagged};

using fuzz::Input;

Tensor indices(Input& input) {
  const bool is_wide = input.byte() % 2 == 0;
  return fuzz::index_tensor(input, is_wide, input.shape());
}

std::vector<std::int64_t> numbers_of(const Tensor& tensor) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < numel_of(tensor.shape()); ++i) {
    numbers.push_back(tensor.dtype() == DType::int64 ? tensor.data<std::int64_t>()[i]
                                                     : tensor.data<std::int32_t>()[i]);
  }
  return numbers;
}

void require(bool holds) {
  if (!holds) std::abort();
}

/// Checks that `values` has a row for each column of `indices` [depth, count], and that each column
/// is a valid index into the first `depth` dimensions of the dense shape.
void use_coo(const TensorDict& node) {
  const Tensor indices = node.at("indices");
  const Shape& shape = node.info().dense_shape;
  const std::vector<std::int64_t> at = numbers_of(indices);
  const auto depth = static_cast<std::size_t>(indices.shape()[0]);
  const auto count = static_cast<std::size_t>(indices.shape()[1]);
  require(node.at("values").shape()[0] == indices.shape()[1] && depth <= shape.size());
  for (std::size_t i = 0; i < at.size(); ++i) {
    require(at[i] >= 0 && at[i] < shape[i / count]);
  }
}

void use_compressed(const TensorDict& node) {
  const bool by_row = node.info().layout == "sparse_csr" || node.info().layout == "sparse_bsr";
  const Tensor compressed = node.at(by_row ? "crow_indices" : "ccol_indices");
  const Tensor plain = node.at(by_row ? "col_indices" : "row_indices");
  const Tensor values = node.at("values");
  const std::vector<std::int64_t> ends = numbers_of(compressed);
  const std::vector<std::int64_t> places = numbers_of(plain);
  const std::size_t batch_dims = compressed.shape().size() - 1;
  const bool is_block = node.info().layout.starts_with("sparse_bs");
  const std::size_t across = batch_dims + (by_row ? 1U : 0U);
  const std::int64_t block =
      is_block ? values.shape()[batch_dims + 1 + (by_row ? 1U : 0U)] : std::int64_t{1};
  const auto lines = static_cast<std::size_t>(compressed.shape().back() - 1);
  const auto count = static_cast<std::size_t>(plain.shape().back());
  require(values.shape()[batch_dims] == plain.shape().back());
  for (std::size_t first = 0; first < ends.size(); first += lines + 1) {
    const std::size_t batch = first / (lines + 1);
    for (std::size_t line = 0; line < lines; ++line) {
      const std::int64_t begin = ends.at(first + line);
      const std::int64_t end = ends.at(first + line + 1);
      require(begin >= 0 && begin <= end && end <= static_cast<std::int64_t>(count));
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t index = places.at(batch * count + static_cast<std::size_t>(i));
        require(index >= 0 && index < node.info().dense_shape.at(across) / block);
      }
    }
  }
}

/// Checks that every row of a jagged tensor is within the tensor of its values.
void use_jagged(const TensorDict& node) {
  const Shape& shape = node.info().dense_shape;
  const auto ragged = static_cast<std::size_t>(std::ranges::find(shape, -1) - shape.begin());
  const Tensor values = node.at("values");
  require(ragged >= 1 && ragged < shape.size() && values.shape().size() + 1 == shape.size());
  const std::int64_t most = values.shape()[ragged - 1];
  const std::vector<std::int64_t> offsets = numbers_of(node.at("offsets"));
  std::vector<std::int64_t> lengths;
  if (node.contains("lengths")) lengths = numbers_of(node.at("lengths"));
  require(static_cast<std::int64_t>(offsets.size()) == shape[0] + 1);
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const std::int64_t length =
        node.contains("lengths") ? lengths.at(i) : offsets[i + 1] - offsets[i];
    require(offsets[i] >= 0 && length >= 0 && length <= most && offsets[i] <= most - length);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = kLayouts[input.byte() % kLayouts.size()];
  info.dense_shape.resize(input.byte() % 6U);
  for (std::int64_t& length : info.dense_shape) length = input.number();
  TensorDict node(info);
  for (const std::string_view part : sparse_parts(info.layout)) {
    const std::uint8_t kind = input.byte();
    if (kind == 0xFF) continue;  // the component is missing
    if (part == "values") {
      node.set(part, Tensor::zeros(DType::float32, input.shape()));
    } else {
      node.set(part, indices(input));
    }
  }
  if (info.layout == kJagged && input.byte() % 2 != 0) node.set("lengths", indices(input));
  try {
    check_sparse_indices(node, "input");
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt);
    return 0;
  }
  if (info.layout == "sparse_coo") {
    use_coo(node);
  } else if (info.layout == kJagged) {
    use_jagged(node);
  } else {
    use_compressed(node);
  }
  return 0;
}
