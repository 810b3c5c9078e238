// Selects tensors of a tree by patterns, and computes statistics of one of them.
#include <tenfold/inspect.hpp>

#include <iostream>
#include <variant>

int main() {
  tenfold::TensorDict tree;
  tree.set("model.weight", tenfold::Tensor::from<float>({-1, 0, 1, 2}));
  tree.set("model.bias", tenfold::Tensor::from<float>({0}));
  const tenfold::TensorDict weights = tenfold::select(tree, {"model.*"}, {"*.bias"});
  const tenfold::Statistics found =
      tenfold::statistics(std::get<tenfold::Leaf>(weights.get("model.weight")));
  std::cout << "mean " << found.mean << ", zeros " << found.zeros << '\n';
  return weights.size() == 1 && found.max == 2 && found.zeros == 1 ? 0 : 1;
}
