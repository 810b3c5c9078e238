// A buffer that refers to memory of the program without a copy, and keeps this memory alive.
#include <tenfold/buffer.hpp>
#include <tenfold/tensor.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

int main() {
  auto memory = std::make_shared<std::vector<float>>(1024, 0.5F);
  const tenfold::Buffer buffer(std::as_writable_bytes(std::span(*memory)), memory);
  const tenfold::Tensor tensor(tenfold::DType::float32, {32, 32}, buffer);
  (*memory)[33] = 7;  // changes the tensor's element, too

  // A read-only buffer: mutable_bytes() of `constant`, or of a tensor over it, throws.
  const auto bytes = std::as_bytes(std::span(*memory));
  const tenfold::Buffer constant = tenfold::Buffer::read_only(bytes, memory);
  return tensor.at<float>(1, 1) == 7 && !constant.writable() ? 0 : 1;
}
