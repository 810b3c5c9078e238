// Arbitrary component tensors of a sparse matrix. Each call throws an Error, or returns indices
// within the shape of its result. No call accesses memory outside the component tensors.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>
#include <tenfold/sparse_builder.hpp>
#include <tenfold/sparse_matrix.hpp>

#include "core/tree/sparse.hpp"
#include "fuzz/input.hpp"

namespace {

using namespace tenfold;

constexpr std::array<std::string_view, 4> kLayouts = {"sparse_csr", "sparse_csc", "sparse_coo",
                                                      "sparse_bsr"};
constexpr std::array<DType, 5> kDTypes = {DType::uint8, DType::float16, DType::float32,
                                          DType::int64, DType::complex128};

using fuzz::Input;

Tensor indices(Input& input, Shape shape) {
  const bool is_wide = input.byte() % 2 == 0;
  return fuzz::index_tensor(input, is_wide, std::move(shape));
}

void require(bool holds) {
  if (!holds) std::abort();
}

std::int64_t index_at(const Tensor& tensor, std::int64_t i) {
  return tensor.dtype() == DType::int32 ? tensor.data<std::int32_t>()[i]
                                        : tensor.data<std::int64_t>()[i];
}

/// Checks the indices, because torch trusts them.
void use(const SparseRows& rows) {
  const std::int64_t count = rows.values.numel();
  if (rows.layout == RowsLayout::csr) {
    require(index_at(rows.crow_indices, 0) == 0);
    require(index_at(rows.crow_indices, rows.num_rows) == count);
    for (std::int64_t i = 0; i < count; ++i) {
      require(index_at(rows.indices, i) >= 0 && index_at(rows.indices, i) < rows.num_cols);
    }
  }
  if (rows.layout == RowsLayout::coo) {
    for (std::int64_t i = 0; i < count; ++i) {
      require(index_at(rows.indices, i) >= 0 && index_at(rows.indices, i) < rows.num_rows);
      const std::int64_t column = index_at(rows.indices, count + i);
      require(column >= 0 && column < rows.num_cols);
    }
  }
}

/// Calls `call`, which may only throw Error.
template <class Call>
void attempt(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported ||
            error.code() == ErrorCode::invalid_argument);
  }
}

void use_matrix(const SparseMatrix& m) {
  // Some results have a size that depends on the shape in the file, which may be huge. Skip these
  // if the shape is large, because the caller that requests such a result must provide the memory.
  const bool is_small = m.num_rows() < 1000 && m.num_cols() < 1000;
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> columns;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(m.num_rows(), 9); ++i) rows.push_back(i);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(m.num_cols(), 9); ++i) columns.push_back(i);
  for (const RowsLayout layout :
       {RowsLayout::dense, RowsLayout::csr, RowsLayout::coo, RowsLayout::padded}) {
    if (!is_small && layout != RowsLayout::padded) continue;
    attempt([&] { use(m.rows(rows, layout)); });
    attempt([&] { use(m.cols(columns, layout)); });
  }
  for (const std::int64_t row : rows) {
    for (const std::int64_t column : columns) attempt([&] { m.at(row, column); });
  }
  attempt([&] { m.check(); });
  if (!is_small) return;
  attempt([&] {
    SparseBuilder builder(m.num_rows(), m.num_cols(), m.dtype(), {.layout = SparseLayout::csc});
    builder.add(m);
    builder.finish().check();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  NodeInfo info;
  info.kind = NodeKind::sparse;
  info.layout = kLayouts[input.byte() % kLayouts.size()];
  info.is_coalesced = input.byte() % 2 == 0;
  info.dense_shape = {input.number(), input.number()};
  if (input.byte() == 0xFF) info.dense_shape.push_back(1);
  const std::int64_t count = input.byte() % 12;
  const std::int64_t ends = input.byte() % 12;
  const DType dtype = kDTypes[input.byte() % kDTypes.size()];
  TensorDict node(info);
  for (const std::string_view part : sparse_parts(info.layout)) {
    if (part == "values") {
      node.set(part, Tensor::zeros(dtype, {count}));
    } else if (part == "indices") {
      node.set(part, indices(input, {2, count}));
    } else {
      node.set(part, indices(input, {part.starts_with('c') && part[1] != 'o' ? ends : count}));
    }
  }
  attempt([&] { use_matrix(SparseMatrix(node)); });
  return 0;
}
