// Loads the weights of a Python model into the same model written with LibTorch, and compares the
// outputs of the two models for one input. make_model.py saves the weights, the input and the
// output of Python.
//
//   python make_model.py folder && build/language_model folder

#include <torch/nn.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch.hpp>

#include <exception>
#include <iostream>

namespace {

constexpr int kTokens = 50;
constexpr int kWidth = 32;

/// The members have the names of those in make_model.py, so the tensors have the same keys.
struct LanguageModelImpl : torch::nn::Module {
  LanguageModelImpl() {
    register_module("embed", embed);
    register_module("rnn", rnn);
    register_module("norm", norm);
    register_module("head", head);
    // The output layer shares the weight of the embedding.
    head->weight.set_data(embed->weight);
  }

  /// tokens: int64 [batch, length]. Returns the scores of the next token, float32 [batch, kTokens].
  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor states = std::get<0>(rnn(embed(tokens)));
    return head(norm(states.select(1, -1)));
  }

  torch::nn::Embedding embed{kTokens, kWidth};
  torch::nn::GRU rnn{torch::nn::GRUOptions(kWidth, kWidth).num_layers(2).batch_first(true)};
  torch::nn::BatchNorm1d norm{kWidth};
  torch::nn::Linear head{kWidth, kTokens};
};
TORCH_MODULE(LanguageModel);

int run(const tenfold::Path& folder) {
  LanguageModel model;
  model->eval();
  const tenfold::LoadReport report = tenfold::load_into(model, folder / "model");
  std::cout << "loaded " << report.loaded.size() << " tensors\n";

  // to_torch() does not copy a tensor: the file stays mapped while such a tensor exists.
  const tenfold::TensorDict expected = tenfold::open(folder / "expected.safetensors");
  const at::Tensor tokens = tenfold::to_torch(expected.at("tokens"));
  const at::Tensor scores = tenfold::to_torch(expected.at("scores"));

  const torch::NoGradGuard no_grad;
  const at::Tensor difference = (model(tokens) - scores).abs().max();
  std::cout << "largest difference from Python: " << difference.item<float>() << '\n';

  // Back to Python: model.load_state_dict(tenfold.load("returned.safetensors")).
  tenfold::save(tenfold::state_dict(model), folder / "returned.safetensors");
  return difference.item<float>() < 1e-5F ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: language_model FOLDER\n";
    return 2;
  }
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "language_model: " << error.what() << '\n';
    return 2;
  }
}
