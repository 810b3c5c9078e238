// Trains on a data set on disk with torch::data::DataLoader.
#include <torch/data/dataloader.h>
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <tenfold/ingest.hpp>
#include <tenfold/torch.hpp>
#include <tenfold/torch/dataset.hpp>

#include <fstream>
#include <iostream>

int main() {
  std::ofstream file("points.csv");
  file << "x,y\n";
  for (int i = 0; i < 64; ++i) file << i / 64.0 << ',' << 3.0 * i / 64 << '\n';
  file.close();
  tenfold::ingest("points.csv", "points");
  const tenfold::Dataset points("points");

  torch::nn::Linear net(1, 1);
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  double loss_of_last = 0;
  for (int epoch = 0; epoch < 60; ++epoch) {
    auto loader = torch::data::make_data_loader(tenfold::torch_dataset(points), /*batch_size=*/16);
    for (const tenfold::TorchBatch& batch : *loader) {
      const at::Tensor x = batch["x"].to(torch::kFloat).unsqueeze(1);
      const at::Tensor y = batch["y"].to(torch::kFloat).unsqueeze(1);
      const at::Tensor loss = torch::mse_loss(net(x), y);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      loss_of_last = loss.item<double>();
    }
  }
  std::cout << "loss " << loss_of_last << '\n';
  return loss_of_last < 1e-2 ? 0 : 1;
}
