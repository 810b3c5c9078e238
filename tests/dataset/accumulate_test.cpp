#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include <tenfold/accumulate.hpp>
#include <tenfold/error.hpp>

#include "dataset/table_of.hpp"

namespace tenfold {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

std::vector<double> weights_of(const Window& window) {
  std::vector<double> weights;
  for (const auto& [batch, weight] : window) weights.push_back(weight);
  return weights;
}

TEST(Accumulate, WeighsEachBatchByItsShareOfTheWindowIncludingTheLastOne) {
  BatchLoader loader(Dataset(test::numbers(23)), {.batch_size = 5});
  std::vector<std::vector<double>> weights;
  std::vector<std::int64_t> rows;
  std::vector<std::int64_t> ids;
  for (auto& window : accumulate(loader, 2)) {
    for (auto& [batch, weight] : window) {
      for (const std::int64_t id : batch.at("id").span<std::int64_t>()) ids.push_back(id);
    }
    weights.push_back(weights_of(window));
    rows.push_back(window.rows());
  }
  EXPECT_THAT(weights, ElementsAre(ElementsAre(0.5, 0.5), ElementsAre(0.5, 0.5),
                                   ElementsAre(DoubleEq(1.0))));
  EXPECT_THAT(rows, ElementsAre(10, 10, 3));
  EXPECT_EQ(ids.size(), 23U);
  EXPECT_EQ(loader.epoch(), 1);
}

TEST(Accumulate, WeighsAShorterBatchLess) {
  BatchLoader loader(Dataset(test::numbers(13)), {.batch_size = 5});
  Windows windows = accumulate(loader, 9);
  auto window = windows.begin();
  EXPECT_THAT(weights_of(*window),
              ElementsAre(DoubleEq(5.0 / 13), DoubleEq(5.0 / 13), DoubleEq(3.0 / 13)));
}

TEST(Accumulate, GivesRanksWeightsWhoseMeanIsOne) {
  // The 2 ranks get 5 and 5, 5 and 5, then 0 and 1 of 21 rows in batches of 10.
  std::vector<std::vector<double>> weights;
  for (const std::int64_t rank : {0, 1}) {
    BatchLoader loader(Dataset(test::numbers(21)),
                       {.batch_size = 10, .rank = rank, .world_size = 2});
    for (auto& window : accumulate(loader, 3)) weights.push_back(weights_of(window));
  }
  EXPECT_THAT(
      weights,
      ElementsAre(ElementsAre(DoubleEq(10.0 / 21), DoubleEq(10.0 / 21), DoubleEq(0)),
                  ElementsAre(DoubleEq(10.0 / 21), DoubleEq(10.0 / 21), DoubleEq(2.0 / 21))));
}

TEST(Accumulate, ContinuesAtTheLoadersPosition) {
  BatchLoader loader(Dataset(test::numbers(20)), {.batch_size = 5});
  loader.load_state_dict(R"({"seed":0,"epoch":3,"position":15})");
  std::vector<std::int64_t> rows;
  for (auto& window : accumulate(loader, 2)) rows.push_back(window.rows());
  EXPECT_THAT(rows, ElementsAre(5));
  EXPECT_EQ(loader.epoch(), 4);
}

TEST(Accumulate, DoesNotCountTheRowsOfABatchThatFailed) {
  TensorDict tree = test::ragged();
  tree.set("tokens.end", test::ints({2, 1, 5, 6}));  // the second row is invalid
  for (const int threads : {1, 3}) {
    BatchLoader loader(Dataset(tree), {.batch_size = 1, .num_threads = threads});
    Windows windows = accumulate(loader, 1);
    auto window = windows.begin();
    EXPECT_THAT(weights_of(*window), ElementsAre(DoubleEq(1)));
    EXPECT_THROW(++window, Error);
    ++window;
    EXPECT_THAT(weights_of(*window), ElementsAre(DoubleEq(1)));
    EXPECT_EQ((*window)[0].batch.at("age").span<std::int64_t>()[0], 50);  // the third row
  }
}

TEST(Accumulate, TakesOwnershipOfALoader) {
  std::int64_t rows = 0;
  for (auto& window :
       accumulate(BatchLoader(Dataset(test::numbers(20)), {.batch_size = 5, .prefetch = 3}), 2)) {
    rows += window.rows();
  }
  EXPECT_EQ(rows, 20);
}

TEST(Accumulate, RefusesWindowsOfNoBatches) {
  BatchLoader loader(Dataset(test::numbers(20)), {.batch_size = 5});
  try {
    accumulate(loader, 0);
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "accumulate: steps: expected at least 1, found 0");
  }
}

TEST(BatchLoader, IsIteratedInPlace) {
  std::int64_t rows = 0;
  for (Batch& batch : BatchLoader(Dataset(test::numbers(20)), {.batch_size = 6})) {
    rows += batch.num_rows();
  }
  EXPECT_EQ(rows, 20);
}

}  // namespace
}  // namespace tenfold
