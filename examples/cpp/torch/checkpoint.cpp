// Stops a training in the middle of an epoch and resumes it. The resulting weights equal those of
// an uninterrupted training.
#include <torch/nn.h>
#include <torch/optim/adam.h>
#include <tenfold/batch_loader.hpp>
#include <tenfold/torch/checkpoint.hpp>

#include <iostream>

namespace {

/// Resumes from the newest checkpoint in `folder`, if there is one, and trains until `last` steps
/// are done. Returns the weights of the first layer.
at::Tensor train(const tenfold::Path& folder, const tenfold::Dataset& data, std::int64_t last) {
  torch::manual_seed(0);
  torch::nn::Sequential net(torch::nn::Linear(2, 8), torch::nn::Dropout(0.5),
                            torch::nn::Linear(8, 1));
  torch::optim::Adam optimizer(net->parameters(), 0.01);
  tenfold::BatchLoader loader(data, {.batch_size = 4, .shuffle = true, .seed = 7});
  tenfold::Value step = 0;

  tenfold::TrainingState training;
  training.add("model", net).add("optimizer", optimizer).add("loader", loader).add("step", step);
  training.add_rng();
  tenfold::CheckpointManager manager(folder, {.max_to_keep = 2});
  if (manager.latest_step()) training.load(manager.restore().state);

  while (step.as<std::int64_t>() < last) {
    for (const tenfold::Batch& batch : loader) {
      optimizer.zero_grad();
      net->forward(tenfold::to_torch(batch.at("x"))).square().mean().backward();
      optimizer.step();
      step = step.as<std::int64_t>() + 1;
      manager.save(step.as<std::int64_t>(), training.state());
      if (step.as<std::int64_t>() == last) break;
    }
  }
  return net->parameters()[0].detach().clone();
}

}  // namespace

int main() {
  tenfold::TensorDict rows(tenfold::NodeInfo{.batch_size = {10}});
  rows.set("x", tenfold::from_torch(torch::linspace(0, 1, 20).reshape({10, 2})));
  const tenfold::Dataset data(rows);
  const at::Tensor whole = train("whole", data, 5);
  train("stopped", data, 2);
  const at::Tensor resumed = train("stopped", data, 5);
  std::cout << "largest difference: " << (whole - resumed).abs().max().item<double>() << '\n';
  return torch::equal(whole, resumed) ? 0 : 1;
}
