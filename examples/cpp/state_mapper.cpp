// Features of states, as a state mapper of Python saves them: here a hierarchy in a JSON file.
#include <tenfold/state_mapper.hpp>

#include <fstream>
#include <iostream>

int main() {
  std::ofstream("rooms.json") << R"({"default": [0, 0], "hall": {"door": [1, 2.5]}})";
  const auto rooms = tenfold::StateMapper::open("rooms.json");
  const tenfold::Tensor rows = rooms.rows({"hall/door", "cellar"});
  std::cout << rows << '\n';
  return rows[0][1].item<double>() == 2.5 && rows[1][0].item<double>() == 0 ? 0 : 1;
}
