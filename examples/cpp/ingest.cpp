// A data set from text files, with inferred types.
#include <tenfold/dataset.hpp>
#include <tenfold/ingest.hpp>

#include <fstream>
#include <iostream>

int main() {
  std::ofstream("rows.jsonl") << R"({"x": 1, "tokens": [5, 6]})" << '\n'
                              << R"({"x": 2.5, "tokens": [7]})" << '\n';
  const tenfold::IngestReport report = tenfold::ingest({"rows.jsonl"}, "rows");
  for (const tenfold::Promotion& widened : report.promotions) {
    std::cout << widened.column << ": " << widened.from << " became " << widened.to << '\n';
  }
  const tenfold::Dataset rows("rows");
  return rows.size() == 2 && rows.rows({1}).at("x").item<double>() == 2.5 ? 0 : 1;
}
