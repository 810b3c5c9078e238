// Reads some bytes of a tensor on disk, and no others.
#include <tenfold/io.hpp>
#include <tenfold/leaf.hpp>

#include <array>
#include <cstring>
#include <variant>

int main() {
  tenfold::TensorDict tree;
  tree.set("big", tenfold::Tensor::from(std::vector<float>(100'000, 2.5F)));
  tenfold::save(tree, "leaf.safetensors");

  const auto leaf = std::get<tenfold::Leaf>(tenfold::open("leaf.safetensors").get("big"));
  std::array<std::byte, 4> bytes{};
  leaf.read(400, bytes);  // 4 bytes from byte 400 on
  float value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return leaf.shape() == tenfold::Shape{100'000} && value == 2.5F ? 0 : 1;
}
