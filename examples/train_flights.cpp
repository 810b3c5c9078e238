// Trains the model of train_flights.py with LibTorch. train_flights.py creates the data set and the
// initial weights. Both programs have the same batches, and the same loss except for rounding.
//
//   python train_flights.py folder && build/release/tests/torch/train_flights folder
//
// `make build` builds this program. To build your own program, see examples/libtorch.

#include <torch/nn.h>
#include <torch/optim/adam.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch.hpp>

#include <cstdint>
#include <exception>
#include <iomanip>
#include <iostream>

namespace {

constexpr std::int64_t kBatchRows = 256;
constexpr std::int64_t kSteps = 2;
constexpr std::uint64_t kSeed = 7;

/// Predicts from data known at departure whether a flight arrives over 15 minutes late. The members
/// have the names that they have in train_flights.py, so the tensors have the same keys.
struct LateModelImpl : torch::nn::Module {
  LateModelImpl() {
    register_module("month", month);
    register_module("hour", hour);
    register_module("hidden", hidden);
    register_module("out", out);
  }

  at::Tensor forward(const tenfold::TorchBatch& batch) {
    const at::Tensor delay = (batch["dep_delay"] / 60.0).clamp(-2, 8);
    const at::Tensor distance = batch["distance"] / 1000.0;
    const at::Tensor known =
        torch::cat({month(batch["month"].to(at::kLong)),
                    hour(batch["sched_dep_time"].to(at::kLong).div(100, "floor")),
                    torch::stack({delay, distance}, 1)},
                   1);
    return out(torch::relu(hidden(known))).squeeze(1);
  }

  torch::nn::Embedding month{13, 8};
  torch::nn::Embedding hour{25, 8};
  torch::nn::Linear hidden{18, 64};
  torch::nn::Linear out{64, 1};
};
TORCH_MODULE(LateModel);

/// Returns a checksum of a batch, which depends on the value and the position of each byte.
std::uint64_t checksum_of(const tenfold::TorchBatch& batch) {
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : batch) {
    const auto* bytes = static_cast<const std::uint8_t*>(tensor.const_data_ptr());
    std::uint64_t of_column = 0;
    for (std::size_t i = 0; i < tensor.nbytes(); ++i) of_column += bytes[i] * (i % 251 + 1);
    sum = sum * 31 + of_column;
  }
  return sum;
}

void train(const tenfold::Path& folder) {
  const tenfold::Dataset flights(folder / "flights");
  LateModel model;
  tenfold::load_into(model, folder / "first_weights");
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));
  torch::nn::BCEWithLogitsLoss criterion;
  tenfold::BatchLoader loader(flights, {.batch_size = kBatchRows, .shuffle = true, .seed = kSeed});
  double total = 0;
  int number = 0;
  for (auto& window : tenfold::accumulate(loader, kSteps)) {
    optimizer.zero_grad();
    for (auto& [rows, weight] : window) {
      const tenfold::TorchBatch batch = tenfold::to_torch(rows);
      std::cout << "batch " << number++ << ": " << rows.num_rows() << " rows, checksum "
                << checksum_of(batch) << '\n';
      const at::Tensor late = (batch["arr_delay"] > 15).to(at::kFloat);
      at::Tensor loss = criterion(model(batch), late);
      (loss * weight).backward();
      total += loss.item<double>() * static_cast<double>(rows.num_rows());
    }
    optimizer.step();
  }
  std::cout << "loss " << std::fixed << std::setprecision(6)
            << total / static_cast<double>(flights.size()) << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: train_flights FOLDER\n";
    return 2;
  }
  try {
    train(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "train_flights: " << error.what() << '\n';
    return 2;
  }
  return 0;
}
