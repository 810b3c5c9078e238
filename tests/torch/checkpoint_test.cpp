#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch/checkpoint.hpp>

#include <string>
#include <vector>

#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using test::TemporaryFolder;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;

/// The same model, optimizer and steps as in tests/data/checkpoint/generate.py.
struct Training {
  explicit Training(double lr = 0.1)
      : net(torch::nn::Linear(3, 4), torch::nn::Dropout(0.5)),
        optimizer((net->to(torch::kFloat64), net->parameters()), torch::optim::AdamWOptions(lr)) {
    state.add("model", *net).add("optimizer", optimizer).add_rng().add("epoch", epoch);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  double step() {
    const at::Tensor x = torch::arange(12, torch::kFloat64).reshape({4, 3}) / 12;
    optimizer.zero_grad();
    const at::Tensor loss = net->forward(x).square().mean();
    loss.backward();
    optimizer.step();
    return loss.item<double>();
  }

  torch::nn::Sequential net;
  torch::optim::AdamW optimizer;
  Value epoch{0};
  TrainingState state;
};

TEST(TrainingState, TrainingResumesFromTheSavedState) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  torch::manual_seed(3);
  Training first;
  first.step();
  first.epoch = Value(7);
  manager.save(1, first.state.state());
  const std::vector<double> expected = {first.step(), first.step(), first.step()};

  torch::manual_seed(99);
  Training second(0.5);
  second.step();
  const LoadReport report = second.state.load(manager.restore().state);
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.loaded, IsSupersetOf({"model.0.weight", "rng.torch", "epoch"}));
  EXPECT_EQ(second.epoch, Value(7));
  EXPECT_EQ((std::vector<double>{second.step(), second.step(), second.step()}), expected);
}

TEST(TrainingState, TrainingSavedByPythonResumes) {
  const std::string run = std::string(TENFOLD_TEST_DATA) + "/checkpoint/python";
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  const RestoredCheckpoint restored = manager.restore({.path = run});
  Training training;
  Value pair;
  training.state.add("pair", pair);
  const LoadReport report = training.state.load(restored.state);
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.ignored, IsSupersetOf({"rng.python", "rng.numpy"}));
  EXPECT_EQ(training.epoch, Value(3));
  EXPECT_EQ(pair, Value(Value::Tuple{{Value(1), Value("a")}}));

  // Entries that only Python uses are kept.
  manager.save(4, training.state.state());
  const TensorDict saved = manager.restore().state;
  EXPECT_EQ(saved["rng"].keys(), (std::vector<std::string>{"python", "numpy", "torch"}));
  EXPECT_EQ(saved["rng"]["python"].at("words").numel(), 625);

  const Value& losses = *restored.info.extra.get_if<Value::Object>()->find("losses");
  for (const Value& loss : losses.get_if<Value::List>()->items) {
    EXPECT_NEAR(training.step(), *loss.get_if<double>(), 1e-12);
  }
}

TEST(TrainingState, MissingAndMismatchedEntriesAreRefused) {
  const TemporaryFolder folder;
  CheckpointManager manager(folder.path());
  Training saved;
  saved.step();
  saved.epoch = Value(7);
  manager.save(1, saved.state.state());
  const TensorDict state = manager.restore().state;

  Training training;
  Value more;
  training.state.add("more", more);
  const auto weight = [&] { return training.net[0]->as<torch::nn::Linear>()->weight; };
  const at::Tensor before = weight().detach().clone();
  try {
    training.state.load(state);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::key_not_found);
    EXPECT_THAT(error.what(), HasSubstr("\"more\" is missing"));
  }
  EXPECT_TRUE(torch::equal(weight(), before));
  EXPECT_EQ(training.epoch, Value(0));
  const LoadReport report = training.state.load(state, false);
  EXPECT_THAT(report.missing, Contains("more"));
  EXPECT_TRUE(torch::equal(weight(), saved.net[0]->as<torch::nn::Linear>()->weight));

  torch::nn::BatchNorm1d foreign(torch::nn::BatchNorm1dOptions(4).affine(false));
  TrainingState renamed;
  renamed.add("model", *foreign);
  const LoadReport nothing = renamed.load(state, false);
  EXPECT_THAT(nothing.loaded, IsEmpty());
  EXPECT_THAT(nothing.missing, Contains("model.running_mean"));

  torch::nn::Linear wide(5, 4);
  Value epoch(1);
  TrainingState other;
  other.add("epoch", epoch).add("model", *wide);
  EXPECT_THROW(other.load(state), Error);
  EXPECT_EQ(epoch, Value(1));
  EXPECT_THROW(other.add("epoch", epoch), Error);
}

TEST(TrainingState, InvalidStatesOfLoadersAndGeneratorsChangeNothing) {
  const auto rows = [](std::int64_t count) {
    NodeInfo info;
    info.batch_size = {count};
    TensorDict tree(info);
    tree.set("x", Tensor::zeros(DType::float32, {count}));
    return Dataset(tree);
  };
  torch::nn::Linear saved_net(3, 4);
  BatchLoader saved_loader(rows(8), {.batch_size = 4});
  TrainingState saved;
  saved.add("model", *saved_net).add("loader", saved_loader).add_rng();
  TensorDict position = saved.state();
  position.set("loader", NonTensor{from_json(R"({"seed":0,"epoch":0,"position":9})", "test")});
  TensorDict dtype = saved.state();
  TensorDict bad_dtype = TensorDict::dict();
  bad_dtype.set("torch", Tensor::zeros(DType::float32, {5056}));
  dtype.set("rng", bad_dtype);
  TensorDict size = saved.state();
  TensorDict bad_size = TensorDict::dict();
  bad_size.set("torch", Tensor::zeros(DType::uint8, {7}));
  bad_size.set("python", Value(1));
  size.set("rng", bad_size);

  torch::nn::Linear net(3, 4);
  BatchLoader loader(rows(8), {.batch_size = 4, .seed = 5});
  TrainingState training;
  training.add("model", *net).add("loader", loader).add_rng();
  const at::Tensor before = net->weight.detach().clone();
  for (const TensorDict& invalid : {position, dtype, size}) {
    try {
      training.load(invalid);
      ADD_FAILURE() << "loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    }
    EXPECT_TRUE(torch::equal(net->weight, before));
    EXPECT_EQ(loader.options().seed, 5U);
    EXPECT_FALSE(training.state()["rng"].contains("python"));
  }
  training.load(saved.state());
  EXPECT_TRUE(torch::equal(net->weight, saved_net->weight));
}

TEST(TrainingState, NamesTheModuleWhoseSavedEntryIsNoDict) {
  torch::nn::Linear net(5, 4);
  TrainingState training;
  training.add("my.net", *net);
  TensorDict saved = TensorDict::dict();
  saved.set("my.net", Value(3));
  try {
    training.load(saved);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("my.net"));
  }
}

}  // namespace
}  // namespace tenfold
