// Writes the parts of a data set sequentially; several hosts can write them in parallel.
#include <tenfold/parts.hpp>

#include <fstream>

#include <tenfold/ingest.hpp>

int main() {
  std::ofstream("a.csv") << "price\n10\n20\n";
  std::ofstream("b.csv") << "price\n30\n";
  const tenfold::Schema schema({{.path = {"price"}, .dtype = tenfold::DType::float32}});
  tenfold::create_parts("prices", schema);
  tenfold::ingest("a.csv", tenfold::part_path("prices", 0, 2), {.schema = schema});
  tenfold::ingest("b.csv", tenfold::part_path("prices", 1, 2), {.schema = schema});

  const tenfold::Dataset prices = tenfold::commit_parts("prices");  // both appear in one step
  return prices.size() == 3 && prices.rows({2}).at("price").item<float>() == 30 ? 0 : 1;
}
