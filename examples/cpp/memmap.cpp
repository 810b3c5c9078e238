// Changes a file of a memory-mapped folder by writing into its tensor.
#include <tenfold/memmap.hpp>

int main() {
  tenfold::TensorDict rows(tenfold::NodeInfo{.batch_size = {1000}});
  rows.set("reward", tenfold::Tensor::zeros(tenfold::DType::float32, {1000}));
  const tenfold::TensorDict buffer = tenfold::memmap(rows, "buffer", {.zeros = true});
  buffer.at("reward").mutable_data<float>()[7] = 1;
  buffer.flush();
  return tenfold::open("buffer").at("reward").at<float>(7) == 1 ? 0 : 1;
}
