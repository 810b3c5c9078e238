// A data set that grows, and views of its rows.
#include <tenfold/dataset.hpp>

int main() {
  const tenfold::Schema schema({{.path = {"price"}, .dtype = tenfold::DType::float32}});
  tenfold::Dataset prices = tenfold::create("prices", schema);
  tenfold::TensorDict rows(tenfold::NodeInfo{.batch_size = {4}});
  rows.set("price", tenfold::Tensor::from<float>({10, 20, 30, 40}));
  prices.append(rows);  // atomic for readers
  prices.flush();       // survives a power failure

  const tenfold::Dataset opened("prices");
  const tenfold::Batch batch = opened.rows({3, 0, 3});
  const auto parts = opened.split({3, 1}, /*seed=*/7);
  return batch.at("price").at<float>(0) == 40 && parts[0].size() == 3 ? 0 : 1;
}
