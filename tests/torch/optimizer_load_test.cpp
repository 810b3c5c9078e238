#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch.hpp>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "io/sample_trees.hpp"
#include "torch/optimizers.hpp"

namespace tenfold {
namespace {

using test::counting;
using test::parameters;
using test::Params;
using test::step;
using test::thrown_by;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::UnorderedElementsAre;
using torch::optim::Adagrad;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::SGD;

/// Returns a group as Python's Adam writes it, with one option set to `value`.
Value python_group(const std::string& option = "", const Value& value = {},
                   std::int64_t num_params = 2) {
  Value::List params;
  for (std::int64_t i = 0; i < num_params; ++i) params.items.emplace_back(i);
  Value::Object group;
  group.members = {{"lr", 0.5},
                   {"betas", Value::Tuple{{Value(0.5), Value(0.75)}}},
                   {"eps", 1e-8},
                   {"weight_decay", 0},
                   {"amsgrad", false},
                   {"maximize", false},
                   {"foreach", Value()},
                   {"capturable", false},
                   {"differentiable", false},
                   {"fused", Value()},
                   {"decoupled_weight_decay", false},
                   {"initial_lr", 0.5},
                   {"params", std::move(params)}};
  for (auto& [name, known] : group.members) {
    if (name == option) known = value;
  }
  if (!option.empty() && group.find(option) == nullptr) group.members.emplace_back(option, value);
  return group;
}

TensorDict python_state(const Value& group = python_group()) {
  TensorDict state = test::node_of(NodeKind::dict);
  state.info().int_keys = true;
  const std::vector<Shape> shapes = {{2, 3}, {4}};
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    TensorDict of_param = test::node_of(NodeKind::dict);
    const float steps = 3;
    of_param.set("step", Tensor::from(std::span(&steps, 1), {}));
    of_param.set("exp_avg", counting(shapes[i], 1));
    of_param.set("exp_avg_sq", counting(shapes[i], 10));
    state.set(std::to_string(i), of_param);
  }
  TensorDict tree = test::node_of(NodeKind::dict);
  tree.set("state", state);
  tree.set("param_groups", Value(Value::List{{group}}));
  return tree;
}

struct Untouched {
  explicit Untouched(Params of = parameters()) : params(std::move(of)), adam(params, 0.125) {
    step(adam);
    before = state_dict(adam)["state"].at("0", "exp_avg").contiguous();
    values = to_torch(before).clone();
  }
  /// Returns the error message of loading `source`, which must leave the optimizer unchanged.
  std::string refusal(const TensorDict& source) {
    const auto error = thrown_by([&] { load_into(adam, source); });
    EXPECT_EQ(error.code, ErrorCode::invalid_argument);
    EXPECT_TRUE(at::equal(to_torch(before), values));
    EXPECT_EQ(adam.param_groups()[0].options().get_lr(), 0.125);
    return error.message;
  }

  Params params;
  Adam adam;
  Tensor before;
  at::Tensor values;
};

TEST(LoadIntoOptimizer, ReportsOptionsThatOnlyPythonHasAndLoadsTheRest) {
  Untouched target;
  const LoadReport report = load_into(target.adam, python_state());
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.loaded, UnorderedElementsAre(
                                 "param_groups.0.lr", "param_groups.0.betas", "param_groups.0.eps",
                                 "param_groups.0.weight_decay", "param_groups.0.amsgrad",
                                 "state.0.step", "state.0.exp_avg", "state.0.exp_avg_sq",
                                 "state.1.step", "state.1.exp_avg", "state.1.exp_avg_sq"));
  EXPECT_THAT(report.ignored,
              UnorderedElementsAre("param_groups.0.maximize", "param_groups.0.foreach",
                                   "param_groups.0.capturable", "param_groups.0.differentiable",
                                   "param_groups.0.fused", "param_groups.0.decoupled_weight_decay",
                                   "param_groups.0.initial_lr"));
  const auto& options = static_cast<AdamOptions&>(target.adam.param_groups()[0].options());
  EXPECT_EQ(options.betas(), std::make_tuple(0.5, 0.75));
}

TEST(LoadIntoOptimizer, RefusesOptionsThatLibTorchDoesNotSupport) {
  Untouched target;
  EXPECT_THAT(target.refusal(python_state(python_group("maximize", true))),
              EndsWith("\"param_groups.0.maximize\": expected false, the only value that LibTorch "
                       "supports, found true"));
  EXPECT_THAT(target.refusal(python_state(python_group("decoupled_weight_decay", true))),
              HasSubstr("expected false, the only value that LibTorch supports, found true"));
  EXPECT_THAT(target.refusal(python_state(python_group("warmup", 3))),
              HasSubstr("not in the target (1): \"param_groups.0.warmup\""));
}

TEST(LoadIntoOptimizer, RefusesOptionsOfOtherTypes) {
  Untouched target;
  const std::vector<std::pair<std::string, Value>> wrong = {
      {"lr", "fast"}, {"betas", Value::List{{Value(0.5)}}}, {"betas", 1}, {"amsgrad", 1}};
  for (const auto& [option, value] : wrong) {
    EXPECT_THAT(target.refusal(python_state(python_group(option, value))),
                HasSubstr("\"param_groups.0." + option + "\": expected "));
  }
  EXPECT_THAT(target.refusal(python_state(python_group("params", Value::List{{Value("a")}}))),
              HasSubstr("expected integers, found \"a\""));
}

TEST(LoadIntoOptimizer, AcceptsATensorAsLearningRate) {
  TensorDict source = python_state();
  TensorDict groups = test::node_of(NodeKind::list);
  TensorDict group = source["param_groups"]["0"];
  group.set("lr", counting({}, 4));
  groups.set("0", group);
  source.set("param_groups", groups);
  Untouched target;
  EXPECT_TRUE(load_into(target.adam, source).ok());
  EXPECT_EQ(target.adam.param_groups()[0].options().get_lr(), 4);
}

TEST(LoadIntoOptimizer, AcceptsStepCountsInPythonsFormAndRefusesInvalidOnes) {
  const std::int64_t five = 5;
  for (const TensorDict::Item& steps : std::vector<TensorDict::Item>{
           TensorDict::Item(NonTensor{Value(5)}),
           TensorDict::Item(Leaf(Tensor::from(std::span(&five, 1), {})))}) {
    TensorDict source = python_state();
    source["state"]["0"].set("step", steps);
    Untouched target;
    EXPECT_TRUE(load_into(target.adam, source).ok());
    EXPECT_EQ(*state_dict(target.adam)["state"].at("0", "step").data<float>(), 5);
  }
  for (const double steps : {2.5, -1.0, std::nan("")}) {
    TensorDict source = python_state();
    source["state"]["0"].set("step", Value(steps));
    EXPECT_THAT(Untouched().refusal(source),
                HasSubstr("\"state.0.step\": expected an integer from 0 to 2^53, found "));
  }
}

TEST(LoadIntoOptimizer, ListsEveryDifferenceBeforeChangingAnything) {
  TensorDict source = python_state();
  source["state"]["0"].set("exp_avg", counting({3, 2}));
  source["state"]["0"].set("exp_avg_sq", Tensor::zeros(DType::float64, {2, 3}));
  source["state"]["1"].set("extra", counting({1}));
  source["state"].set("7", source["state"]["1"]);
  Untouched target;
  EXPECT_THAT(
      target.refusal(source),
      AllOf(HasSubstr("0 missing, 2 unexpected, 2 mismatched"), HasSubstr("\"state.7\""),
            HasSubstr("\"state.1.extra\""),
            HasSubstr("\"state.0.exp_avg\": expected float32 [2, 3], found float32 [3, 2]"),
            HasSubstr("\"state.0.exp_avg_sq\": expected float32 [2, 3], found float64 [2, 3]; "
                      "to convert it, use the option cast")));
}

TEST(LoadIntoOptimizer, IfNotStrictLoadsTheStateOfAParameterCompletelyOrNotAtAll) {
  TensorDict source = python_state();
  source["state"]["0"].set("exp_avg", counting({3, 2}));
  Untouched target;
  const LoadReport report = load_into(target.adam, source, {.strict = false});
  EXPECT_EQ(report.mismatched.size(), 1U);
  EXPECT_THAT(report.loaded,
              IsSupersetOf({"state.1.step", "state.1.exp_avg", "param_groups.0.lr"}));
  EXPECT_THAT(report.loaded, testing::Not(Contains("state.0.step")));
  const TensorDict state = state_dict(target.adam)["state"];
  EXPECT_TRUE(at::equal(to_torch(target.before), target.values));
  EXPECT_EQ(*state.at("0", "step").data<float>(), 1);
  EXPECT_EQ(*state.at("1", "step").data<float>(), 3);
  EXPECT_EQ(state.at("1", "exp_avg").data<float>()[1], 2);
}

TEST(LoadIntoOptimizer, ReportsMissingStateThatTheNextStepNeeds) {
  TensorDict source = python_state(python_group("amsgrad", true));
  EXPECT_THAT(Untouched().refusal(source),
              HasSubstr("missing from the source (2): \"state.0.max_exp_avg_sq\", "
                        "\"state.1.max_exp_avg_sq\""));
  Adagrad adagrad(parameters(), 0.1);
  TensorDict empty = state_dict(adagrad);
  empty.set("state", Value(Value::Object{}));
  EXPECT_THAT(thrown_by([&] { load_into(adagrad, empty); }).message, HasSubstr("\"state.0\""));
  EXPECT_THAT(load_into(adagrad, empty, {.strict = false}).missing,
              ElementsAre("state.0", "state.1"));
  step(adagrad);
}

TEST(LoadIntoOptimizer, RefusesGroupsOfOtherSizes) {
  EXPECT_THAT(Untouched().refusal(python_state(python_group("", {}, 3))),
              HasSubstr("\"param_groups.0.params\": expected 2 parameters, found 3 parameters"));
  TensorDict source = python_state();
  source.set("param_groups", Value(Value::List{{python_group(), python_group("", {}, 1)}}));
  EXPECT_THAT(Untouched().refusal(source), HasSubstr("\"param_groups\": expected 1 group of 2 "
                                                     "parameters, found 2 groups of 2, 1"));
}

TEST(LoadIntoOptimizer, TheStateOfOneParameterIsNotLoadedIntoTwo) {
  const Params same = {at::ones({4}).requires_grad_(), at::ones({4}).requires_grad_()};
  Untouched target(same);
  TensorDict source = python_state(python_group("params", Value::List{{Value(1), Value(1)}}));
  EXPECT_THAT(target.refusal(source),
              HasSubstr("\"state.1\": expected state of its own, found that of state.0"));
}

TEST(LoadIntoOptimizer, RefusesOtherTreesThanOptimizerState) {
  TensorDict source;
  source.set("model", counting({1}));
  EXPECT_THAT(Untouched().refusal(source),
              HasSubstr("expected the keys \"state\" and \"param_groups\", found model"));
  source.set("optimizer", python_state());
  EXPECT_THAT(Untouched().refusal(source),
              EndsWith("found model, optimizer; its node \"optimizer\" has them"));
  const auto refusal_of = [](const Value& state, const Value& groups) {
    TensorDict tree;
    tree.set("state", state);
    tree.set("param_groups", groups);
    return Untouched().refusal(tree);
  };
  const Value none = Value::Object();
  const auto group_of = [](const std::string& name, const Value& value) {
    Value::Object group;
    group.members = {{name, value}};
    return Value(Value::List{{Value(std::move(group))}});
  };
  EXPECT_THAT(
      refusal_of(none, Value(3)),
      EndsWith("param_groups: not a valid optimizer state: expected a dict or list, found 3"));
  EXPECT_THAT(refusal_of(none, Value(Value::List{{Value(3)}})),
              HasSubstr("param_groups.0: not a valid optimizer state: expected a dict or list"));
  EXPECT_THAT(
      refusal_of(none, group_of("lr", Value(1))),
      EndsWith("param_groups.0.params: not a valid optimizer state: expected a dict or list, "
               "found none"));
  EXPECT_THAT(refusal_of(none, group_of("params", Value(Value::List{{Value("x")}}))),
              EndsWith("param_groups.0.params: not a valid optimizer state: expected integers, "
                       "found \"x\""));
  EXPECT_THAT(refusal_of(Value(3), group_of("params", Value(Value::List()))),
              EndsWith("state: not a valid optimizer state: expected a dict or list, found 3"));
  LoadIntoOptions options;
  options.keys = {"state.*"};
  Adam adam(parameters(), 0.1);
  EXPECT_THAT(thrown_by([&] { load_into(adam, python_state(), options); }).message,
              HasSubstr("keys: they do not apply to an optimizer"));
}

TEST(LoadIntoOptimizer, ADryRunOnlyCompares) {
  Untouched target;
  EXPECT_EQ(load_into(target.adam, python_state(), {.dry_run = true}).loaded.size(), 11U);
  EXPECT_TRUE(at::equal(to_torch(target.before), target.values));
  EXPECT_EQ(target.adam.param_groups()[0].options().get_lr(), 0.125);
}

TEST(LoadIntoOptimizer, AcceptsSgdBeforeItsFirstMomentum) {
  SGD sgd(parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  step(sgd);
  TensorDict source = state_dict(sgd);
  TensorDict none = test::node_of(NodeKind::dict);
  none.set("momentum_buffer", Value());
  source["state"].set("1", none);
  EXPECT_TRUE(load_into(sgd, source).ok());
  EXPECT_EQ(sgd.state().size(), 1U);
  step(sgd);
  EXPECT_EQ(sgd.state().size(), 2U);
}

}  // namespace
}  // namespace tenfold
