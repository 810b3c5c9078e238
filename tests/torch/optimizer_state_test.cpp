#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch.hpp>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"
#include "torch/optimizers.hpp"

namespace tenfold {
namespace {

using test::parameters;
using test::Params;
using test::step;
using test::thrown_by;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using torch::optim::Adagrad;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::LBFGS;
using torch::optim::LBFGSOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::RMSprop;
using torch::optim::SGD;

/// A kind of optimizer, and the function that creates one.
struct Make {
  std::string name;
  std::unique_ptr<torch::optim::Optimizer> (*make)(Params params);
};

template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> made(Params params, const Options& options) {
  return std::make_unique<Optimizer>(std::move(params), options);
}

const std::vector<Make> kMakes = {
    {"Adam", [](Params params) { return made<Adam>(std::move(params), AdamOptions(0.1)); }},
    {"AdamAmsgrad",
     [](Params params) {
       return made<Adam>(std::move(params),
                         AdamOptions(0.1).betas({0.5, 0.75}).amsgrad(true).weight_decay(0.1));
     }},
    {"AdamW",
     [](Params params) {
       return made<AdamW>(std::move(params), torch::optim::AdamWOptions(0.1).eps(1e-3));
     }},
    {"SGD",
     [](Params params) { return made<SGD>(std::move(params), torch::optim::SGDOptions(0.1)); }},
    {"SGDMomentum",
     [](Params params) {
       return made<SGD>(std::move(params),
                        torch::optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
     }},
    {"RMSprop",
     [](Params params) {
       return made<RMSprop>(std::move(params), torch::optim::RMSpropOptions(0.1).alpha(0.5));
     }},
    {"RMSpropCentered",
     [](Params params) {
       return made<RMSprop>(std::move(params),
                            torch::optim::RMSpropOptions(0.1).centered(true).momentum(0.5));
     }},
    {"Adagrad",
     [](Params params) {
       return made<Adagrad>(
           std::move(params),
           torch::optim::AdagradOptions(0.1).lr_decay(0.1).initial_accumulator_value(0.25));
     }},
    {"LBFGS",
     [](Params params) {
       return made<LBFGS>(std::move(params), LBFGSOptions(0.1).max_iter(4).history_size(2));
     }},
    {"LBFGSStrongWolfe",
     [](Params params) {
       return made<LBFGS>(std::move(params),
                          LBFGSOptions(0.5).max_iter(3).max_eval(50).history_size(2).line_search_fn(
                              "strong_wolfe"));
     }},
};

class EveryOptimizer : public testing::TestWithParam<Make> {
 protected:
  test::TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Optimizers, EveryOptimizer, testing::ValuesIn(kMakes),
                         [](const auto& made) { return made.param.name; });

void expect_same(const Params& a, const Params& b) {
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << a[i] << b[i];
}

TEST_P(EveryOptimizer, ResumesExactlyFromASavedState) {
  for (const char* file : {"state", "state.safetensors"}) {
    const Params params = parameters();
    const auto optimizer = GetParam().make(params);
    step(*optimizer, 3);
    save(state_dict(*optimizer), folder_ / file);
    const Params copies = {params[0].detach().clone().requires_grad_(),
                           params[1].detach().clone().requires_grad_()};
    const auto loaded = GetParam().make(copies);
    for (auto& group : loaded->param_groups()) group.options().set_lr(7);
    const LoadReport report = load_into(*loaded, folder_ / file);
    EXPECT_TRUE(report.ok());
    EXPECT_THAT(report.loaded, Contains("param_groups.0.lr"));
    step(*optimizer, 2);
    step(*loaded, 2);
    expect_same(params, copies);
  }
}

TEST_P(EveryOptimizer, FillsExistingTensorsInPlace) {
  const auto optimizer = GetParam().make(parameters());
  step(*optimizer, 3);
  const auto loaded = GetParam().make(parameters());
  step(*loaded, 1);
  const TensorDict state = state_dict(*loaded);
  EXPECT_TRUE(load_into(*loaded, state_dict(*optimizer)).ok());
  const TensorDict after = state_dict(*loaded);
  EXPECT_EQ(test::difference(after, state_dict(*optimizer)), "");
  after["state"].for_each_leaf([&](const KeyPath& path, const TensorDict::Item& item) {
    if (path.back() == "step" || !std::holds_alternative<Leaf>(item)) return;
    EXPECT_EQ(after["state"].tensor(path).raw_data(), state["state"].tensor(path).raw_data());
  });
}

TEST_P(EveryOptimizer, RestartsFromAStateBeforeTheFirstStep) {
  const auto fresh = GetParam().make(parameters());
  const auto stepped = GetParam().make(parameters());
  step(*stepped, 3);
  EXPECT_TRUE(load_into(*stepped, state_dict(*fresh)).ok());
  EXPECT_EQ(test::difference(state_dict(*stepped), state_dict(*fresh)), "");
}

// --- the layout of Python's state_dict ---

TEST(OptimizerState, HasPythonsLayout) {
  Adam optimizer({OptimizerParamGroup({at::ones({2}).requires_grad_()}),
                  OptimizerParamGroup({at::ones({3}).requires_grad_()},
                                      std::make_unique<AdamOptions>(AdamOptions(0.5)))},
                 AdamOptions(0.25));
  step(optimizer, 2);
  const TensorDict tree = state_dict(optimizer);
  EXPECT_THAT(tree.keys(), ElementsAre("state", "param_groups"));
  const TensorDict state = tree["state"];
  EXPECT_EQ(state.kind(), NodeKind::dict);
  EXPECT_TRUE(state.info().int_keys);
  EXPECT_THAT(state.keys(), ElementsAre("0", "1"));
  EXPECT_THAT(state["1"].keys(), ElementsAre("step", "exp_avg", "exp_avg_sq"));
  EXPECT_EQ(*state.at("1", "step").data<float>(), 2);
  EXPECT_EQ(state.at("1", "step").ndim(), 0);
  EXPECT_EQ(to_json(tree.value("param_groups")),
            R"([{"lr": 0.25, "betas": [0.9, 0.999], "eps": 1e-08, "weight_decay": 0.0, )"
            R"("amsgrad": false, "maximize": false, "foreach": null, "capturable": false, )"
            R"("differentiable": false, "fused": null, "decoupled_weight_decay": false, )"
            R"("params": [0]}, )"
            R"({"lr": 0.5, "betas": [0.9, 0.999], "eps": 1e-08, "weight_decay": 0.0, )"
            R"("amsgrad": false, "maximize": false, "foreach": null, "capturable": false, )"
            R"("differentiable": false, "fused": null, "decoupled_weight_decay": false, )"
            R"("params": [1]}])");
  EXPECT_TRUE(tree["param_groups"]["0"].value("betas").is<Value::Tuple>());
}

TEST(OptimizerState, StoresStepsBeyondTheIntegersOfAFloat) {
  const Params params = parameters();
  Adam optimizer(params, 0.1);
  step(optimizer);
  constexpr std::int64_t kSteps = (1 << 24) + 1;
  auto& state = *optimizer.state().at(params[0].unsafeGetTensorImpl());
  static_cast<torch::optim::AdamParamState&>(state).step(kSteps);
  const TensorDict tree = state_dict(optimizer);
  EXPECT_EQ(*tree["state"].at("0", "step").data<double>(), kSteps);
  Adam loaded(parameters(), 0.1);
  EXPECT_TRUE(load_into(loaded, tree).ok());
  EXPECT_EQ(*state_dict(loaded)["state"].at("0", "step").data<double>(), kSteps);
}

/// A user-defined optimizer.
struct OwnOptions : torch::optim::OptimizerCloneableOptions<OwnOptions> {
  double get_lr() const override { return 0; }
  void set_lr(double /*lr*/) override {}
};
struct OwnOptimizer : torch::optim::Optimizer {
  explicit OwnOptimizer(Params params)
      : Optimizer(std::move(params), std::make_unique<OwnOptions>()) {}
  at::Tensor step(LossClosure /*closure*/) override { return {}; }
};

TEST(OptimizerState, RefusesUnknownOptimizersAndThoseWithoutGroups) {
  OwnOptimizer optimizer(parameters());
  const auto error = thrown_by([&] { state_dict(optimizer); });
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_THAT(error.message,
              HasSubstr("expected torch::optim::Adam, AdamW, SGD, RMSprop, Adagrad or LBFGS"));
  EXPECT_EQ(thrown_by([&] { load_into(optimizer, TensorDict()); }).code, ErrorCode::unsupported);
  Adam adam(parameters(), AdamOptions(0.1));
  adam.param_groups().clear();
  torch::optim::Optimizer& without_groups = adam;
  EXPECT_THAT(thrown_by([&] { state_dict(without_groups); }).message,
              HasSubstr("found an optimizer without groups"));
}

}  // namespace
}  // namespace tenfold
