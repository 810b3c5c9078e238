// Groups batches by optimizer step. Each batch comes with the weight of its loss.
#include <tenfold/accumulate.hpp>

#include <cmath>

int main() {
  tenfold::TensorDict rows(tenfold::NodeInfo{.batch_size = {10}});
  rows.set("x", tenfold::Tensor::zeros(tenfold::DType::float32, {10}));
  tenfold::BatchLoader loader(tenfold::Dataset(rows), {.batch_size = 4});
  int steps = 0;
  for (auto& window : tenfold::accumulate(loader, 2)) {
    double total = 0;
    for (auto& [batch, weight] : window) total += weight;  // loss(batch) * weight
    if (std::abs(total - 1) > 1e-12) return 1;
    ++steps;
  }
  return steps == 2 ? 0 : 1;
}
