#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/mapped_dict.hpp>

#include "support/values.hpp"

namespace tenfold::test {

/// The keys "key<first>", "key<first + 1>", ..., n in all.
struct Words {
  explicit Words(std::int64_t n, std::int64_t first = 0) {
    for (std::int64_t i = first; i < first + n; ++i) texts.push_back("key" + std::to_string(i));
    views.assign(texts.begin(), texts.end());
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  DictKeys keys() const { return std::span<const std::string_view>(views); }
  std::vector<std::string> texts;
  std::vector<std::string_view> views;
};

/// A single column "value", float32 [2].
inline Schema pair_schema() {
  return Schema::from_json(R"({"columns": {"value": {"dtype": "float32", "shape": [2]}}})", "test");
}

/// Returns a batch of the values [i, -i] for every i in [first, first + n).
inline Batch pairs(std::int64_t first, std::int64_t n) {
  std::vector<float> x;
  for (std::int64_t i = first; i < first + n; ++i) {
    x.insert(x.end(), {static_cast<float>(i), static_cast<float>(-i)});
  }
  std::vector<BatchColumn> columns(1);
  columns[0].column = pair_schema().columns()[0];
  columns[0].values = Tensor::from(std::span<const float>(x), {n, 2});
  return {n, std::move(columns)};
}

/// Builds a dictionary in which the value of key<i> is [i, -i] for every i in [0, n).
inline void build_pairs(const Path& path, std::int64_t n, bool durable = true) {
  MappedDictBuilder builder(path, DictKeyType::string, pair_schema(), {.durable = durable},
                            DictValueForm::tensor);
  builder.append(Words(n).keys(), pairs(0, n));
  builder.commit();
}

/// Returns i if the value of the key is [i, -i], otherwise -1.
inline std::int64_t pair_at(const MappedDict& dict, std::string_view key) {
  const Batch value = dict.at(key);
  const auto x = test::values<float>(value.at("value"));
  return x[0] == -x[1] ? static_cast<std::int64_t>(x[0]) : -1;
}

}  // namespace tenfold::test
