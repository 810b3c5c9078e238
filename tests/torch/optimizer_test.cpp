#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch.hpp>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using test::counting;
using test::thrown_by;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::UnorderedElementsAre;
using torch::optim::Adagrad;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::OptimizerParamGroup;
using torch::optim::RMSprop;
using torch::optim::SGD;
using Params = std::vector<at::Tensor>;

/// Parameters of two shapes, the same at each call.
Params parameters() {
  return {at::ones({2, 3}).requires_grad_(), at::full({4}, 2.0).requires_grad_()};
}

/// Steps with gradients that differ from step to step and from number to number.
void step(torch::optim::Optimizer& optimizer, int steps = 1) {
  for (int i = 1; i <= steps; ++i) {
    for (const auto& group : optimizer.param_groups()) {
      for (const at::Tensor& param : group.params()) {
        const at::Tensor count = at::arange(1, param.numel() + 1, at::kFloat).view(param.sizes());
        param.mutable_grad() = count.sin() * param.detach() / i;
      }
    }
    optimizer.step();
  }
}

/// One way to make an optimizer, for all of its kinds.
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

TEST_P(EveryOptimizer, GoesOnAsIfItHadNotStopped) {
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

TEST_P(EveryOptimizer, FillsTensorsThatExistInPlace) {
  const auto optimizer = GetParam().make(parameters());
  step(*optimizer, 3);
  const auto loaded = GetParam().make(parameters());
  step(*loaded, 1);
  const TensorDict state = state_dict(*loaded);
  EXPECT_TRUE(load_into(*loaded, state_dict(*optimizer)).ok());
  const TensorDict after = state_dict(*loaded);
  EXPECT_EQ(test::difference(after, state_dict(*optimizer)), "");
  after["state"].for_each_leaf([&](const KeyPath& path, const TensorDict::Item&) {
    if (path.back() == "step") return;
    EXPECT_EQ(after["state"].tensor(path).raw_data(), state["state"].tensor(path).raw_data());
  });
}

TEST_P(EveryOptimizer, StartsAnewFromAStateBeforeTheFirstStep) {
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

TEST(OptimizerState, CountsMoreStepsThanAFloatCan) {
  const Params params = parameters();
  SGD sgd(params, 0.1);
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

TEST(OptimizerState, RefusesOptimizersThatItDoesNotKnow) {
  torch::optim::LBFGS optimizer(parameters());
  const auto error = thrown_by([&] { state_dict(optimizer); });
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_THAT(error.message, HasSubstr("expected torch::optim::Adam, AdamW, SGD"));
  EXPECT_EQ(thrown_by([&] { load_into(optimizer, TensorDict()); }).code, ErrorCode::unsupported);
}

// --- files of Python ---

/// A group as Python's Adam writes it, with one option set to `value`.
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
  /// The message with which `source` is refused, having changed nothing.
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

TEST(LoadIntoOptimizer, ReportsWhatOnlyPythonHasAndLoadsTheRest) {
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

TEST(LoadIntoOptimizer, RefusesWhatLibTorchCannotFollow) {
  Untouched target;
  EXPECT_THAT(target.refusal(python_state(python_group("maximize", true))),
              EndsWith("\"param_groups.0.maximize\": expected false, which is all that LibTorch "
                       "does, found true"));
  EXPECT_THAT(target.refusal(python_state(python_group("decoupled_weight_decay", true))),
              HasSubstr("expected false, which is all that LibTorch does, found true"));
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

TEST(LoadIntoOptimizer, TakesALearningRateThatIsATensor) {
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

TEST(LoadIntoOptimizer, TakesStepsAsPythonHasWrittenThem) {
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
                HasSubstr("\"state.0.step\": expected a number of steps, found "));
  }
}

TEST(LoadIntoOptimizer, ListsEveryDifferenceBeforeAnythingIsChanged) {
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
                      "pass cast=True")));
}

TEST(LoadIntoOptimizer, IfNotStrictLoadsTheStateOfAParameterWholeOrNotAtAll) {
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

TEST(LoadIntoOptimizer, MissesWhatTheNextStepNeeds) {
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

TEST(LoadIntoOptimizer, NamesGroupsOfOtherSizes) {
  EXPECT_THAT(Untouched().refusal(python_state(python_group("", {}, 3))),
              HasSubstr("\"param_groups.0.params\": expected 2 parameters, found 3 parameters"));
  TensorDict source = python_state();
  source.set("param_groups", Value(Value::List{{python_group(), python_group("", {}, 1)}}));
  EXPECT_THAT(Untouched().refusal(source), HasSubstr("\"param_groups\": expected 1 group of 2 "
                                                     "parameters, found 2 groups of 2, 1"));
}

TEST(LoadIntoOptimizer, TwoParametersNeverShareTheStateOfOne) {
  const Params same = {at::ones({4}).requires_grad_(), at::ones({4}).requires_grad_()};
  Untouched target(same);
  TensorDict source = python_state(python_group("params", Value::List{{Value(1), Value(1)}}));
  EXPECT_THAT(target.refusal(source),
              HasSubstr("\"state.1\": expected state of its own, found that of state.0"));
}

TEST(LoadIntoOptimizer, RefusesWhatIsNoOptimizerState) {
  TensorDict source;
  source.set("model", counting({1}));
  EXPECT_THAT(Untouched().refusal(source),
              HasSubstr("expected the keys \"state\" and \"param_groups\", found model"));
  source.set("optimizer", python_state());
  EXPECT_THAT(Untouched().refusal(source),
              EndsWith("found model, optimizer; its node \"optimizer\" has them"));
  LoadIntoOptions options;
  options.keys = {{"state.*"}};
  Adam adam(parameters(), 0.1);
  EXPECT_THAT(thrown_by([&] { load_into(adam, python_state(), options); }).message,
              HasSubstr("keys: it does not apply to an optimizer"));
}

TEST(LoadIntoOptimizer, ADryRunComparesOnly) {
  Untouched target;
  EXPECT_EQ(load_into(target.adam, python_state(), {.dry_run = true}).loaded.size(), 11U);
  EXPECT_TRUE(at::equal(to_torch(target.before), target.values));
  EXPECT_EQ(target.adam.param_groups()[0].options().get_lr(), 0.125);
}

TEST(LoadIntoOptimizer, TakesASgdWhoseMomentumHasNotBegun) {
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

/// Two layers, whose parameters an optimizer gets in an order of its own.
struct Layers : torch::nn::Module {
  Layers()
      : first(register_module("first", torch::nn::Linear(3, 2))),
        second(register_module("second", torch::nn::Linear(2, 2))) {}
  torch::nn::Linear first, second;
};

Params picked(const Layers& layers, bool reversed) {
  Params params = layers.parameters();
  if (reversed) std::reverse(params.begin(), params.end());
  return params;
}

TEST(OptimizerNames, StateFindsItsParameterWhateverTheOrder) {
  Layers layers;
  Adam adam(picked(layers, false), 0.1);
  step(adam, 2);
  const TensorDict saved = state_dict(adam, layers);
  EXPECT_EQ(to_json(saved["param_groups"]["0"].value("param_names")),
            R"(["first.weight", "first.bias", "second.weight", "second.bias"])");
  Adam reversed(picked(layers, true), 0.5);
  const LoadReport report = load_into(reversed, layers, saved);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(reversed.param_groups()[0].options().get_lr(), 0.1);
  const TensorDict state = state_dict(reversed)["state"];
  for (const auto& [to, from] : {std::pair("0", "3"), {"1", "2"}, {"2", "1"}, {"3", "0"}}) {
    EXPECT_EQ(test::bytes_of(state.at(to, "exp_avg")),
              test::bytes_of(saved["state"].at(from, "exp_avg")));
  }
  // By order the shapes would not fit.
  EXPECT_THAT(thrown_by([&] { load_into(reversed, saved); }).message, HasSubstr("mismatched"));
}

TEST(OptimizerNames, NamesAreRenamedAndWhatDiffersIsListed) {
  Layers layers;
  Adam adam(picked(layers, false), 0.1);
  step(adam);
  TensorDict saved = state_dict(adam, layers);
  LoadIntoOptions options;
  options.rename = [](const std::string& name) {
    return name == "first.bias" ? std::string("other.bias") : name;
  };
  const test::Thrown thrown = thrown_by([&] { load_into(adam, layers, saved, options); });
  EXPECT_THAT(thrown.message, AllOf(HasSubstr("\"first.bias\""), HasSubstr("\"other.bias\"")));
  options.strict = false;
  const LoadReport report = load_into(adam, layers, saved, options);
  EXPECT_THAT(report.missing, ElementsAre("first.bias"));
  EXPECT_THAT(report.unexpected, ElementsAre("other.bias"));
  EXPECT_THAT(report.loaded, IsSupersetOf({"state.0.exp_avg", "state.2.exp_avg"}));
  EXPECT_THAT(thrown_by([&] { load_into(adam, layers, state_dict(adam), options); }).message,
              HasSubstr("rename: it does not apply to an optimizer whose parameters are matched"));
}

TEST(OptimizerNames, FilesWithoutNamesAreMatchedByOrder) {
  Layers layers;
  Adam adam(picked(layers, false), 0.1);
  step(adam);
  const TensorDict saved = state_dict(adam);
  EXPECT_TRUE(load_into(adam, layers, saved).ok());
  Adam foreign(parameters(), 0.1);
  EXPECT_THAT(thrown_by([&] { load_into(foreign, layers, saved); }).message,
              HasSubstr("param_groups.0.params.0: it has no name"));
}

TEST(OptimizerNames, AParameterThatMovedToAnotherGroupIsADifference) {
  Layers layers;
  const auto grouped = [&](std::size_t in_first) {
    const Params all = layers.parameters();
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(in_first);
    return Adam({OptimizerParamGroup(Params(all.begin(), middle)),
                 OptimizerParamGroup(Params(middle, all.end()))},
                0.1);
  };
  Adam saved = grouped(2);
  step(saved);
  Adam target = grouped(3);
  EXPECT_THAT(thrown_by([&] { load_into(target, layers, state_dict(saved, layers)); }).message,
              HasSubstr("\"param_groups.0.params\": expected 3 parameters (first.weight, "
                        "first.bias, second.weight), found 2 parameters (first.weight, "
                        "first.bias)"));
}

}  // namespace
}  // namespace tenfold
