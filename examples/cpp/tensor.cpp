// Tensors: shapes, elements, views, text.
#include <tenfold/tensor.hpp>

#include <iostream>

int main() {
  const tenfold::Tensor w = tenfold::Tensor::from<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  std::cout << w << '\n';  // tensor([[0, 1, 2],
                           //         [3, 4, 5]], float32 [2, 3])
  float sum = 0;
  for (const float value : w.span<float>()) sum += value;
  const bool same = w.at<float>(1, 2) == 5 && w[1][2].item<int>() == 5 && w.size(-1) == 3;
  w.mutable_data<float>()[0] = 10;  // an error if the pages are read-only
  const auto half = tenfold::Tensor::from<tenfold::Half>({tenfold::Half(0.5F)});
  return same && sum == 15 && w[0][0].item<double>() == 10 && half.item<float>() == 0.5F ? 0 : 1;
}
