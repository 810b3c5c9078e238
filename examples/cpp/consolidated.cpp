// Saves a tree as one file in tensordict's consolidated format, and opens the file.
#include <tenfold/consolidated.hpp>

int main() {
  tenfold::TensorDict tree;
  tree.set("x", tenfold::Tensor::from<float>({1, 2}));
  tenfold::consolidate(tree, "one_file", {.locked = true});
  const tenfold::ConsolidatedTree opened = tenfold::open_consolidated("one_file");
  return opened.locked && opened.tree.at("x").at<float>(1) == 2 ? 0 : 1;
}
