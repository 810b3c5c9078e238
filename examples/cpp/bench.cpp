// Measures how fast a checkpoint is read from the page cache, compared with pread.
#include <tenfold/bench.hpp>

#include <iostream>
#include <vector>

int main() {
  tenfold::TensorDict tree;
  tree.set("w", tenfold::Tensor::from(std::vector<float>(250'000, 1.0F), {1000, 250}));
  tenfold::save(tree, "bench.safetensors");
  const tenfold::BenchReport report = tenfold::bench("bench.safetensors");
  std::cout << report.read.speed.warm / 1e9 << " of " << report.read.limit.warm / 1e9 << " GB/s\n";
  return report.read.num_bytes > 0 ? 0 : 1;
}
