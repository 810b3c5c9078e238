#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/data.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch.hpp>

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "dataset/table_of.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAreArray;

std::vector<std::int64_t> ids_of(const TorchBatch& batch) {
  const at::Tensor ids = batch["id"];
  return {ids.const_data_ptr<std::int64_t>(), ids.const_data_ptr<std::int64_t>() + ids.numel()};
}

template <class Loader>
std::vector<std::int64_t> epoch_of(Loader& loader) {
  std::vector<std::int64_t> all;
  for (const TorchBatch& batch : *loader) {
    const auto ids = ids_of(batch);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  return all;
}

std::vector<std::string> names_of(const TorchBatch& batch) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : batch) names.push_back(name);
  return names;
}

std::vector<std::int64_t> order_of(std::int64_t size, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(size));
  Permutation(size, seed, epoch).fill(0, rows);
  return rows;
}

TEST(TorchBatch, HasTheTensorsOfABatchByNameWithoutACopy) {
  const Batch batch = Dataset(test::numbers(5)).rows(1, 4);
  const TorchBatch there = to_torch(batch);
  EXPECT_THAT(names_of(there), ElementsAre("x", "id", "flag"));
  EXPECT_EQ(there["x"].const_data_ptr(), batch.at("x").raw_data());
  EXPECT_TRUE(at::equal(
      there["x"], at::tensor({10.F, 11.F, 12.F, 20.F, 21.F, 22.F, 30.F, 31.F, 32.F}).view({3, 3})));
  EXPECT_EQ(there["flag"].scalar_type(), at::kBool);
  EXPECT_FALSE(there.contains("y"));
  EXPECT_THROW(there["y"], Error);
}

TEST(TorchBatch, HasOffsetsOfRaggedRowsAndValidity) {
  const Dataset dataset(test::ragged());
  const TorchBatch there = to_torch(dataset.rows(0, 4));
  EXPECT_THAT(names_of(there),
              ElementsAre("tokens", "tokens.offsets", "name", "name.offsets", "tags",
                          "tags.offsets", "tags.item_offsets", "age", "age.valid"));
  EXPECT_TRUE(at::equal(there["tokens.offsets"], at::tensor({0, 2, 2, 5, 6}, at::kLong)));
  EXPECT_TRUE(at::equal(there["age.valid"], at::tensor({1, 0, 1, 0}).to(at::kBool)));
  const TorchBatch padded =
      to_torch(dataset.select({"tokens"}).rows(0, 4, {.pad_all = std::int64_t{-1}}));
  EXPECT_THAT(names_of(padded), ElementsAre("tokens", "tokens.length"));
  EXPECT_TRUE(
      at::equal(padded["tokens"],
                at::tensor({1, 2, -1, -1, -1, -1, 3, 4, 5, 6, -1, -1}, at::kInt).view({4, 3})));
}

TEST(TorchBatch, HasColumnsNamedLikeTheValidityOfAnother) {
  BatchColumn age;
  age.column = {.path = {"age"}, .dtype = DType::int64, .nullable = true};
  age.values = test::ints({1, 2});
  age.valid = Tensor::zeros(DType::bool_, {2});
  BatchColumn flag;
  flag.column = {.path = {"age.valid"}, .dtype = DType::bool_};
  flag.values = Tensor::zeros(DType::bool_, {2});
  const TorchBatch there = to_torch(Batch(2, {age, flag}));
  EXPECT_THAT(names_of(there), ElementsAre("age", "age.valid"));
  EXPECT_EQ(there["age.valid"].const_data_ptr(), flag.values.raw_data());
}

TEST(TorchDataset, WorksWithTorchsDataLoader) {
  for (const std::size_t workers : {0U, 2U}) {
    auto in_order = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
        torch_dataset(Dataset(test::numbers(103))),
        torch::data::DataLoaderOptions(10).workers(workers));
    std::vector<std::int64_t> expected(103);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(epoch_of(in_order), expected) << workers << " workers";
    auto shuffled =
        torch::data::make_data_loader(torch_dataset(Dataset(test::numbers(103))),
                                      torch::data::DataLoaderOptions(10).workers(workers));
    EXPECT_THAT(epoch_of(shuffled), UnorderedElementsAreArray(expected));
  }
}

TEST(TorchDataset, SupportsTorchsMap) {
  auto doubled = torch_dataset(Dataset(test::numbers(8)))
                     .map(torch::data::transforms::BatchLambda<TorchBatch, at::Tensor>(
                         [](TorchBatch batch) { return batch["id"] * 2; }));
  const std::vector<std::size_t> rows = {3, 1};
  EXPECT_TRUE(at::equal(doubled.get_batch(rows), at::tensor({6, 2}, at::kLong)));
}

TEST(TorchBatches, AreInTheLoadersOrderInTwoEpochs) {
  auto loader = torch::data::make_data_loader(torch_dataset(
      BatchLoader(Dataset(test::numbers(103)), {.batch_size = 10, .shuffle = true, .seed = 4})));
  for (const std::uint64_t epoch : {0U, 1U}) {
    EXPECT_EQ(epoch_of(loader), order_of(103, 4, epoch)) << "epoch " << epoch;
  }
}

TEST(TorchBatches, ContinueFromASavedState) {
  const BatchLoaderOptions options = {.batch_size = 10, .shuffle = true, .seed = 4};
  TorchBatches first = torch_dataset(BatchLoader(Dataset(test::numbers(103)), options));
  std::vector<std::int64_t> seen;
  for (int i = 0; i < 4; ++i) {
    for (const std::int64_t id : ids_of(*first.get_batch(0))) seen.push_back(id);
  }
  EXPECT_EQ(first.state_dict(), R"({"seed":4,"epoch":0,"position":40})");
  TorchBatches second = torch_dataset(BatchLoader(Dataset(test::numbers(103)), options));
  second.load_state_dict(first.state_dict());
  auto loader = torch::data::make_data_loader(second);
  for (const std::int64_t id : epoch_of(loader)) seen.push_back(id);
  EXPECT_EQ(seen, order_of(103, 4, 0));
}

TEST(TorchBatches, AreReturnedOnceWithThreeWorkers) {
  auto loader = torch::data::make_data_loader(
      torch_dataset(BatchLoader(Dataset(test::numbers(103)), {.batch_size = 10, .shuffle = true})),
      torch::data::DataLoaderOptions().workers(3));
  EXPECT_THAT(epoch_of(loader), UnorderedElementsAreArray(order_of(103, 0, 0)));
}

}  // namespace
}  // namespace tenfold
