// Rows of a sparse matrix on disk.
#include <tenfold/sparse_builder.hpp>
#include <tenfold/sparse_matrix.hpp>

#include <iostream>

int main() {
  tenfold::SparseBuilder builder(3, 4, tenfold::DType::float32);
  builder.add(tenfold::Tensor::from<std::int64_t>({0, 2, 2}),
              tenfold::Tensor::from<std::int64_t>({1, 0, 3}),
              tenfold::Tensor::from<float>({5, 3, 4}));
  builder.finish().save("ratings");

  const tenfold::SparseMatrix ratings("ratings");
  const tenfold::SparseRows rows = ratings.rows({2, 0}, tenfold::RowsLayout::csr);
  std::cout << rows.values << '\n' << rows.indices << '\n';
  return ratings.at(2, 3).item<float>() == 4 && rows.values.numel() == 3 ? 0 : 1;
}
