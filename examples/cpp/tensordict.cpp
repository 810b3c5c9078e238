// Trees of tensors, values and nodes.
#include <tenfold/tensordict.hpp>

#include <iostream>
#include <variant>

int main() {
  tenfold::TensorDict layer;
  layer.set("weight", tenfold::Tensor::zeros(tenfold::DType::float32, {3, 4}));
  layer.set("bias", tenfold::Tensor::zeros(tenfold::DType::float32, {3}));
  auto checkpoint = tenfold::TensorDict::dict({{"model", layer}, {"epoch", 3}, {"lr", 0.1}});
  checkpoint.set("done", false);
  std::cout << checkpoint << '\n';

  int tensors = 0;
  for (auto&& [key, item] : checkpoint["model"]) {
    if (const auto* leaf = std::get_if<tenfold::Leaf>(&item)) {
      std::cout << key << ": " << leaf->dtype() << '\n';
      ++tensors;
    }
  }
  const tenfold::Tensor weight = checkpoint.at("model.weight");  // or at("model", "weight")
  const bool found = checkpoint.contains("model.bias") && !checkpoint.find("model.scale");
  return tensors == 2 && weight.size(0) == 3 && found && checkpoint.value<int>("epoch") == 3 ? 0
                                                                                             : 1;
}
