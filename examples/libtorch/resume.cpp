// Resumes a training that resume.py began and saved with torch.save. Compares the losses with those
// of an uninterrupted training in Python. Saves the state, from which resume.py --back resumes.
//
//   python resume.py folder adam && build/resume folder adam && python resume.py folder adam --back
//
// With --manager in all three commands, a tenfold::CheckpointManager restores and saves the state.

#include <torch/nn.h>
#include <torch/optim.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch.hpp>
#include <tenfold/torch/checkpoint.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kSteps = 10;
constexpr double kTolerance = 1e-6;

/// The members have the names of those in resume.py, so the tensors have the same keys.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
    to(torch::kFloat64);
  }

  /// inputs: float64 [rows, 4]. Returns float64 [rows, 1].
  at::Tensor forward(const at::Tensor& inputs) { return second(torch::tanh(first(inputs))); }

  torch::nn::Linear first{4, 16};
  torch::nn::Linear second{16, 1};
};
TORCH_MODULE(Net);

/// Creates an optimizer. Its options do not matter, because the saved state replaces them.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& name, Net& net) {
  std::vector<at::Tensor> params = net->parameters();
  if (name == "adam") return std::make_unique<torch::optim::Adam>(params);
  if (name == "adamw") return std::make_unique<torch::optim::AdamW>(params);
  if (name == "sgd") return std::make_unique<torch::optim::SGD>(params, 1.0);
  if (name == "rmsprop") return std::make_unique<torch::optim::RMSprop>(params);
  if (name == "adagrad") return std::make_unique<torch::optim::Adagrad>(params);
  if (name.starts_with("lbfgs")) return std::make_unique<torch::optim::LBFGS>(params);
  throw std::invalid_argument("unknown optimizer " + name);
}

int run(const tenfold::Path& folder, const std::string& name, bool is_managed) {
  Net net;
  const auto optimizer = make_optimizer(name, net);
  tenfold::Value step;
  tenfold::TrainingState training;
  training.add("model", *net).add("optimizer", *optimizer).add("step", step).add_rng();
  tenfold::CheckpointManager manager(folder / "run");
  tenfold::LoadReport report;
  if (is_managed) {
    report = training.load(manager.restore().state);
  } else {
    const tenfold::TensorDict saved = tenfold::open(folder / "python.pt");
    tenfold::load_into(net, saved["model"]);
    report = tenfold::load_into(*optimizer, saved["optimizer"]);
    step = saved.value<std::int64_t>("step");
  }
  std::cout << "loaded " << report.loaded.size() << " parts\n";
  for (const std::string& part : report.ignored) std::cout << "LibTorch has no " << part << '\n';

  const tenfold::TensorDict data = tenfold::open(folder / "data.safetensors");
  const at::Tensor inputs = tenfold::to_torch(data.at("inputs"));
  const at::Tensor wanted = tenfold::to_torch(data.at("wanted"));
  const auto begin = step.as<std::int64_t>("step");
  double largest = 0;
  for (std::int64_t number = begin; number < begin + kSteps; ++number) {
    const at::Tensor loss = optimizer->step([&] {
      optimizer->zero_grad();
      const at::Tensor found = torch::mse_loss(net(inputs), wanted);
      found.backward();
      return found;
    });
    const auto expected = data.at("losses")[number].item<double>();
    std::cout << "step " << number << ": loss " << std::setprecision(12) << loss.item<double>()
              << ", in Python " << expected << '\n';
    largest = std::max(largest, std::abs(loss.item<double>() - expected));
  }

  step = tenfold::Value(begin + kSteps);
  if (is_managed) {
    // This training draws no random numbers.
    manager.save(begin + kSteps, training.state(), {.constant = {"rng"}});
  } else {
    tenfold::save(tenfold::TensorDict::dict({{"model", tenfold::state_dict(net)},
                                             {"optimizer", tenfold::state_dict(*optimizer)},
                                             {"step", step}}),
                  folder / "cpp.pt");
  }
  std::cout << "largest difference from Python: " << largest << '\n';
  return largest < kTolerance ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_managed = argc == 4 && std::string(argv[3]) == "--manager";
  if (argc != 3 && !is_managed) {
    std::cerr << "usage: resume FOLDER OPTIMIZER [--manager]\n";
    return 2;
  }
  try {
    return run(argv[1], argv[2], is_managed);
  } catch (const std::exception& error) {
    std::cerr << "resume: " << error.what() << '\n';
    return 2;
  }
}
