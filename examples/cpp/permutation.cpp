// A random permutation whose elements are computed on demand, not stored.
#include <tenfold/permutation.hpp>

#include <array>
#include <iostream>

int main() {
  const tenfold::Permutation order(1'000'000'000'000, /*seed=*/7, /*epoch=*/0);
  std::array<std::int64_t, 4> rows{};
  order.fill(512, rows);
  for (const std::int64_t row : rows) std::cout << row << '\n';
  return rows[1] == order[513] ? 0 : 1;
}
