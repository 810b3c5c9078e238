// Prints what unpickling a file would import, without unpickling it.
#include <tenfold/io.hpp>
#include <tenfold/scan.hpp>

#include <iostream>

int main() {
  tenfold::TensorDict tree;
  tree.set("w", tenfold::Tensor::from<float>({1, 2}));
  tenfold::save(tree, "model.pt");
  const tenfold::ScanReport report = tenfold::scan("model.pt");
  for (const tenfold::ScanFinding& found : report.findings) {
    std::cout << found.global << ": " << to_string(found.risk) << '\n';
  }
  return report.safe() ? 0 : 1;
}
