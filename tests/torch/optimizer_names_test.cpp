#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "io/sample_trees.hpp"
#include "torch/optimizers.hpp"

namespace tenfold {
namespace {

using test::parameters;
using test::Params;
using test::step;
using test::thrown_by;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using torch::optim::Adam;
using torch::optim::OptimizerParamGroup;

/// Two layers.
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

TEST(OptimizerNames, StateIsMatchedByNameInAnyOrder) {
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
  // Without the module, parameters are matched by position, so the shapes differ.
  EXPECT_THAT(thrown_by([&] { load_into(reversed, saved); }).message, HasSubstr("mismatched"));
}

TEST(OptimizerNames, NamesAreRenamedAndDifferencesAreListed) {
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
  EXPECT_THAT(
      thrown_by([&] { load_into(adam, layers, state_dict(adam), options); }).message,
      HasSubstr("rename: it does not apply to an optimizer whose parameters are matched by order"));
}

TEST(OptimizerNames, RenameOfEveryNameKeepsTheNumbersOfStates) {
  Layers layers;
  Adam adam(picked(layers, false), 0.1);
  step(adam, 2);
  const TensorDict saved = state_dict(adam, layers);
  struct Wrapped : torch::nn::Module {
    Layers& net;
    explicit Wrapped(const Layers& layers)
        : net(*register_module("net", std::make_shared<Layers>(layers))) {}
  } wrapped(layers);
  Adam loaded(wrapped.parameters(), 0.5);
  LoadIntoOptions options;
  options.rename = [](const std::string& name) { return "net." + name; };
  options.renamed = {"first.bias"};
  EXPECT_TRUE(load_into(loaded, wrapped, saved, options).ok());
  const TensorDict state = state_dict(loaded)["state"];
  for (const char* number : {"0", "1", "2", "3"}) {
    EXPECT_EQ(test::bytes_of(state.at(number, "exp_avg")),
              test::bytes_of(saved["state"].at(number, "exp_avg")));
  }
  options.renamed = {"third.bias"};
  EXPECT_THAT(thrown_by([&] { load_into(loaded, wrapped, saved, options); }).message,
              HasSubstr("rename: no parameter \"third.bias\""));
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

TEST(OptimizerNames, StateIsMatchedByNameInAnotherGroupWhichKeepsItsOptions) {
  Layers layers;
  const auto grouped = [&](std::size_t in_first, double lr) {
    const Params all = layers.parameters();
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(in_first);
    return Adam({OptimizerParamGroup(Params(all.begin(), middle)),
                 OptimizerParamGroup(Params(middle, all.end()))},
                lr);
  };
  Adam saved = grouped(2, 0.1);
  step(saved);
  const TensorDict state = state_dict(saved, layers);
  Adam target = grouped(3, 0.5);
  const LoadReport report = load_into(target, layers, state);
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.ignored, IsSupersetOf({"param_groups.0", "param_groups.1"}));
  EXPECT_EQ(target.param_groups()[0].options().get_lr(), 0.5);
  const TensorDict loaded = state_dict(target)["state"];
  for (const char* number : {"0", "1", "2", "3"}) {
    EXPECT_EQ(test::bytes_of(loaded.at(number, "exp_avg")),
              test::bytes_of(state["state"].at(number, "exp_avg")));
  }
}

}  // namespace
}  // namespace tenfold
