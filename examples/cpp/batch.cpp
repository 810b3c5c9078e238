// Rows of a data set: numbers and strings.
#include <tenfold/batch.hpp>
#include <tenfold/dataset.hpp>
#include <tenfold/ingest.hpp>

#include <fstream>
#include <iostream>

int main() {
  std::ofstream("people.csv") << "name,age\nAda,36\nAlan,41\n";
  tenfold::ingest("people.csv", "people");
  const tenfold::Batch batch = tenfold::Dataset("people").rows(0, 2);
  for (std::int64_t row = 0; row < batch.num_rows(); ++row) {
    std::cout << batch.text("name", row) << ": " << batch.at("age")[row].item<int>() << '\n';
  }
  return batch.text("name", 1) == "Alan" && batch.at("age")[1].item<int>() == 41 ? 0 : 1;
}
