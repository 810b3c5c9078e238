// A snapshot that torchsnapshot restores.
#include <tenfold/snapshot.hpp>

#include <iostream>

int main() {
  tenfold::TensorDict model;
  model.set("weight", tenfold::Tensor::from<float>({1, 2}));
  tenfold::save_snapshot(tenfold::TensorDict::dict({{"model", model}}), "snapshot");
  std::cout << tenfold::snapshot_metadata("snapshot") << '\n';
  return tenfold::open("snapshot").at("model.weight").at<float>(0) == 1 ? 0 : 1;
}
