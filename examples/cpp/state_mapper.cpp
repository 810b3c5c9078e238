// Saves a hierarchy of values as JSON, opens the file and looks up two paths. Python's
// HierarchicalStateMapper reads and writes such files, too.
#include <tenfold/state_mapper.hpp>

#include <iostream>

int main() {
  auto levels = tenfold::TensorDict::dict({{"default", tenfold::Tensor::from({0.0, 0.0})}});
  levels.set("hall", tenfold::TensorDict::dict({{"door", tenfold::Tensor::from({1.0, 2.5})}}));
  tenfold::StateMapper::hierarchical(levels).save("rooms.json");
  const auto rooms = tenfold::StateMapper::open("rooms.json");
  const tenfold::Tensor rows = rooms.rows({"hall/door", "cellar"});
  std::cout << rows << '\n';
  return rows[0][1].item<double>() == 2.5 && rows[1][0].item<double>() == 0 ? 0 : 1;
}
