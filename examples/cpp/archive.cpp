// Packs a memory-mapped folder into one file, and unpacks it.
#include <tenfold/archive.hpp>

int main() {
  tenfold::TensorDict tree;
  tree.set("x", tenfold::Tensor::from<float>({1, 2}));
  tenfold::save(tree, "folder");
  tenfold::pack_memmap("folder", "folder.tdz", {.deflate_level = 6});
  tenfold::unpack_memmap("folder.tdz", "unpacked");
  return tenfold::verify("folder.tdz").ok() && tenfold::verify("unpacked").ok() ? 0 : 1;
}
