// A sparse matrix from coordinates in any order.
#include <tenfold/sparse_builder.hpp>

int main() {
  tenfold::SparseBuilder builder(2, 2, tenfold::DType::float64,
                                 {.layout = tenfold::SparseLayout::csc});
  const auto rows = tenfold::Tensor::from<std::int64_t>({1, 0, 1});
  const auto columns = tenfold::Tensor::from<std::int64_t>({1, 0, 1});
  builder.add(rows, columns, tenfold::Tensor::from<double>({1, 2, 3}));
  const tenfold::SparseMatrix matrix = builder.finish();
  return matrix.nnz() == 2 && matrix.at(1, 1).item<double>() == 4 ? 0 : 1;  // duplicates are added
}
