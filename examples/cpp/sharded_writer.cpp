// Two ranks write the halves of one tensor into one file. Here one process runs both ranks.
#include <tenfold/sharded_writer.hpp>

#include <string>
#include <vector>

int main() {
  tenfold::TensorDict tree;  // the writer uses only its dtypes and shapes
  tree.set("w", tenfold::Tensor::zeros(tenfold::DType::float32, {4, 2}));
  tenfold::ShardedWriter writer("sharded.safetensors", tree,
                                {{.tensor = 0, .offsets = {0, 0}, .sizes = {2, 2}, .rank = 0},
                                 {.tensor = 0, .offsets = {2, 0}, .sizes = {2, 2}, .rank = 1}});
  std::vector<std::string> receipts;
  for (const int rank : {0, 1}) {
    tenfold::ShardWriter part(writer.ticket(rank));
    const float value = rank == 0 ? 1 : 2;
    const std::vector<tenfold::Tensor> mine = {
        tenfold::Tensor::from<float>({value, value, value, value}, {2, 2})};
    part.write(0, mine);
    receipts.push_back(part.finish());
  }
  writer.publish(receipts);
  return tenfold::open("sharded.safetensors").at("w").at<float>(3, 1) == 2 ? 0 : 1;
}
