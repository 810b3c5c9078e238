// Saves, opens and loads a LibTorch module and its optimizer, and maps tensors without a copy.
#include <torch/nn.h>
#include <torch/optim.h>
#include <tenfold/torch.hpp>

#include <iostream>

int main() {
  torch::nn::Linear net(4, 2);
  torch::optim::AdamW optimizer(net->parameters());
  net(torch::ones({1, 4})).sum().backward();
  optimizer.step();
  tenfold::save(tenfold::TensorDict::dict({{"model", tenfold::state_dict(net)},
                                           {"optimizer", tenfold::state_dict(optimizer)},
                                           {"epoch", 3}}),
                "trained.pt");  // for torch.load() in Python; another suffix selects another format

  const tenfold::TensorDict saved = tenfold::open("trained.pt");
  torch::nn::Linear again(4, 2);
  torch::optim::AdamW optimizer_again(again->parameters());
  tenfold::load_into(again, saved["model"]);
  tenfold::load_into(optimizer_again, saved["optimizer"]);

  const at::Tensor weight = tenfold::to_torch(saved.at("model.weight"));  // no copy
  const at::Tensor halves = torch::ones({2}, torch::kHalf);
  const tenfold::Tensor shared = tenfold::from_torch(halves);
  std::cout << saved << '\n';
  return torch::equal(weight, net->weight) && torch::equal(again->weight, net->weight) &&
                 saved.value<int>("epoch") == 3 && shared.data<at::Half>()[0] == 1.0F
             ? 0
             : 1;
}
