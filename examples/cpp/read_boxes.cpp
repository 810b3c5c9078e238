// Reads one column of a matrix on disk, not the whole matrix. Verifies the checksums of the blocks
// that contain this column.
#include <tenfold/read_boxes.hpp>

#include <variant>
#include <vector>

int main() {
  tenfold::TensorDict tree;
  tree.set("w", tenfold::Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}));
  tenfold::save(tree, "boxes.safetensors");
  const auto leaf = std::get<tenfold::Leaf>(tenfold::open("boxes.safetensors").get("w"));
  const tenfold::Tensor column = tenfold::Tensor::zeros(leaf.dtype(), {3, 1});
  const std::vector<tenfold::BoxRead> boxes = {
      {.leaf = leaf, .offsets = {0, 1}, .destination = column}};
  tenfold::read_boxes(boxes);
  const std::vector<tenfold::BoxCheck> checks = {
      {.path = {"w"}, .offsets = {0, 1}, .sizes = {3, 1}}};
  if (!tenfold::verify_boxes("boxes.safetensors", checks).ok()) return 1;
  return column.at<float>(2, 0) == 6 ? 0 : 1;
}
