// Prints which tensors of two checkpoints differ, and by how much.
#include <tenfold/diff.hpp>

#include <iostream>

int main() {
  tenfold::TensorDict a;
  a.set("w", tenfold::Tensor::from<float>({1, 2, 3}));
  tenfold::TensorDict b;
  b.set("w", tenfold::Tensor::from<float>({1, 2, 3.5F}));
  b.set("epoch", 3);
  const tenfold::DiffReport report = tenfold::diff(a, b);
  for (const tenfold::Change& change : report.changed) {
    std::cout << change.key << ": " << to_string(change.kind) << " by " << change.max_abs << '\n';
  }
  return !report.same() && report.added.size() == 1 && report.changed.at(0).max_abs == 0.5 ? 0 : 1;
}
