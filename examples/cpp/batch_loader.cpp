// Shuffled batches, and resuming in the middle of an epoch.
#include <tenfold/batch_loader.hpp>

#include <string>

int main() {
  tenfold::TensorDict rows(tenfold::NodeInfo{.batch_size = {10}});
  rows.set("x", tenfold::Tensor::zeros(tenfold::DType::float32, {10, 2}));
  const tenfold::Dataset data(rows);
  const tenfold::BatchLoaderOptions options{.batch_size = 4, .shuffle = true, .seed = 7};
  std::string state;
  {
    tenfold::BatchLoader loader(data, options);
    for (const tenfold::Batch& batch : loader) {
      if (batch.at("x").size(1) != 2) return 1;
      state = loader.state_dict();
      break;  // the process ends here
    }
  }
  tenfold::BatchLoader loader(data, options);
  loader.load_state_dict(state);
  std::int64_t left = 0;
  for (const tenfold::Batch& batch : loader) left += batch.num_rows();
  return left == 6 ? 0 : 1;
}
