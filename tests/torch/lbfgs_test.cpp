#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/sample_trees.hpp"
#include "torch/optimizers.hpp"

// LBFGS has one state for all parameters, which is stored as the state of the first parameter.

namespace tenfold {
namespace {

using test::counting;
using test::parameters;
using test::Params;
using test::step;
using test::thrown_by;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using torch::optim::LBFGS;
using torch::optim::LBFGSOptions;

constexpr std::int64_t kNumNumbers = 10;  // in all tensors of parameters()

LBFGSOptions options() { return LBFGSOptions(0.1).max_iter(3).max_eval(9).history_size(3); }

/// Returns a state with the layout that Python saves after two iterations. The step size `t` is a
/// tensor, as if the learning rate were a tensor, but `lr` and `H_diag` are numbers, as if it were
/// a number. Loading must accept both forms.
TensorDict lbfgs_state() {
  const auto list = [](Tensor tensor, std::size_t num_nulls = 0) {
    TensorDict made = test::node_of(NodeKind::list);
    made.set("0", std::move(tensor));
    for (std::size_t i = 1; i <= num_nulls; ++i) made.set(std::to_string(i), Value());
    return made;
  };
  TensorDict first = test::node_of(NodeKind::dict);
  first.set("func_evals", Value(3));
  first.set("n_iter", Value(2));
  first.set("al", list(counting({}), 2));
  first.set("d", counting({kNumNumbers}, 1));
  first.set("t", counting({}, 2));
  first.set("old_dirs", list(counting({kNumNumbers}, 2)));
  first.set("old_stps", list(counting({kNumNumbers}, 3)));
  first.set("ro", list(counting({}, 4)));
  first.set("H_diag", Value(1));
  first.set("prev_flat_grad", counting({kNumNumbers}, 5));
  first.set("prev_loss", Value(0.25));
  TensorDict states = test::node_of(NodeKind::dict);
  states.info().int_keys = true;
  states.set("0", first);
  Value::Object group;
  group.members = {{"lr", 0.5},
                   {"max_iter", 3},
                   {"max_eval", 4},
                   {"tolerance_grad", 1e-7},
                   {"tolerance_change", 1e-9},
                   {"history_size", 3},
                   {"line_search_fn", Value()},
                   {"params", Value::List{{Value(0), Value(1)}}}};
  TensorDict tree = test::node_of(NodeKind::dict);
  tree.set("state", states);
  tree.set("param_groups", Value(Value::List{{Value(std::move(group))}}));
  return tree;
}

/// Returns lbfgs_state() with the member `key` of the state of parameter 0 replaced.
TensorDict with(const std::string& key, const TensorDict::Item& item) {
  TensorDict tree = lbfgs_state();
  tree["state"]["0"].set(key, item);
  return tree;
}
TensorDict with_option(const std::string& key, const Value& value) {
  TensorDict tree = lbfgs_state();
  Value groups = tree.value("param_groups");
  auto& group = std::get<Value::List>(groups.data()).items[0];
  for (auto& [name, known] : std::get<Value::Object>(group.data()).members) {
    if (name == key) known = value;
  }
  tree.set("param_groups", groups);
  return tree;
}

/// Returns the error message of loading `source`, which must leave the optimizer unchanged.
std::string refusal(const TensorDict& source) {
  LBFGS target(parameters(), options());
  step(target);
  const TensorDict before = state_dict(target);
  const at::Tensor direction = to_torch(before["state"].at("0", "d"));
  const at::Tensor values = direction.clone();
  const auto error = thrown_by([&] { load_into(target, source); });
  EXPECT_EQ(error.code, ErrorCode::invalid_argument);
  EXPECT_EQ(test::difference(state_dict(target), before), "");
  EXPECT_TRUE(at::equal(direction, values));
  return error.message;
}

TEST(Lbfgs, StateHasPythonsLayout) {
  LBFGS optimizer(parameters(), options());
  step(optimizer);
  const TensorDict tree = state_dict(optimizer);
  EXPECT_THAT(tree["state"].keys(), ElementsAre("0"));
  const TensorDict state = tree["state"]["0"];
  EXPECT_THAT(state.keys(), ElementsAre("func_evals", "n_iter", "al", "d", "t", "old_dirs",
                                        "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss"));
  EXPECT_EQ(to_json(state.value("n_iter")), "3");
  EXPECT_EQ(to_json(state.value("t")), "0.1");
  EXPECT_EQ(state.at("d").shape(), Shape{kNumNumbers});
  EXPECT_EQ(state["old_dirs"].kind(), NodeKind::list);
  EXPECT_THAT(state["old_dirs"].keys(), ElementsAre("0", "1"));
  EXPECT_EQ(state.at("ro", "1").ndim(), 0);
  EXPECT_THAT(state["al"].keys(), ElementsAre("0", "1", "2"));
  EXPECT_TRUE(state["al"].value("2").is_null());
  EXPECT_EQ(to_json(tree.value("param_groups")),
            R"([{"lr": 0.1, "max_iter": 3, "max_eval": 9, "tolerance_grad": 1e-07, )"
            R"("tolerance_change": 1e-09, "history_size": 3, "line_search_fn": null, )"
            R"("params": [0, 1]}])");
}

TEST(Lbfgs, AfterOneIterationThereIsAScaleAndNoHistory) {
  LBFGS optimizer(parameters(), options().max_iter(1));
  step(optimizer);
  const TensorDict tree = state_dict(optimizer);
  const TensorDict state = tree["state"]["0"];
  EXPECT_FALSE(state.contains("al"));
  EXPECT_EQ(to_json(state.value("H_diag")), "1");
  EXPECT_EQ(to_json(state.value("old_dirs")), "[]");
  LBFGS loaded(parameters(), options());
  step(loaded);  // creates a history, which the load must clear
  EXPECT_TRUE(load_into(loaded, tree).ok());
  EXPECT_EQ(test::difference(state_dict(loaded), tree), "");
}

TEST(Lbfgs, BeforeTheFirstIterationThereAreOnlyCounters) {
  LBFGS optimizer(parameters(), options());
  optimizer.step([] { return at::zeros({}); });  // no gradient: nothing to do
  const TensorDict tree = state_dict(optimizer);
  EXPECT_THAT(tree["state"]["0"].keys(), ElementsAre("func_evals", "n_iter"));
  LBFGS loaded(parameters(), options());
  step(loaded);
  EXPECT_TRUE(load_into(loaded, tree).ok());
  EXPECT_EQ(test::difference(state_dict(loaded), tree), "");
  step(loaded);
}

TEST(Lbfgs, LoadsStateInPythonsLayout) {
  LBFGS optimizer(parameters());
  const LoadReport report = load_into(optimizer, lbfgs_state());
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.loaded, Contains("state.0.old_dirs.0"));
  EXPECT_THAT(report.loaded, Contains("state.0.H_diag"));
  const TensorDict state = state_dict(optimizer)["state"]["0"];
  EXPECT_EQ(to_json(state.value("t")), "2.0");
  EXPECT_EQ(to_json(state.value("H_diag")), "1");
  EXPECT_EQ(state.at("old_stps", "0").data<float>()[9], 12);
  EXPECT_EQ(static_cast<LBFGSOptions&>(optimizer.param_groups()[0].options()).max_eval(), 4);
  step(optimizer);
}

TEST(Lbfgs, RefusesHistoriesThatWouldBeReadOutOfBounds) {
  const auto list = [](const std::vector<Tensor>& tensors) {
    TensorDict made = test::node_of(NodeKind::list);
    for (std::size_t i = 0; i < tensors.size(); ++i) made.set(std::to_string(i), tensors[i]);
    return made;
  };
  EXPECT_THAT(refusal(with("ro", NonTensor{Value(Value::List{})})),
              HasSubstr("\"state.0.ro\": expected as many entries as old_dirs (1), found 0"));
  EXPECT_THAT(
      refusal(with("old_stps", list({counting({3})}))),
      HasSubstr("\"state.0.old_stps.0\": expected a tensor of shape [10], found float32 [3]"));
  EXPECT_THAT(refusal(with("old_stps", NonTensor{Value(Value::List{{Value()}})})),
              HasSubstr("\"state.0.old_stps.0\": expected a tensor of shape [10], found null"));
  EXPECT_THAT(refusal(with("al", list({counting({})}))),
              HasSubstr("\"state.0.al\": expected history_size (3) entries, found 1"));
  EXPECT_THAT(refusal(with("d", Leaf(counting({2, 5})))),
              HasSubstr("\"state.0.d\": expected a tensor of shape [10], found float32 [2, 5]"));
  EXPECT_THAT(refusal(with("old_dirs", NonTensor{Value(3)})),
              HasSubstr("\"state.0.old_dirs\": expected a list of tensors, found 3"));
  EXPECT_THAT(refusal(with("prev_flat_grad", NonTensor{Value()})),
              HasSubstr("missing from the source (1): \"state.0.prev_flat_grad\""));
  const Tensor ten = counting({kNumNumbers});
  EXPECT_THAT(refusal(with("old_dirs", list({ten, ten, ten, ten}))),
              HasSubstr("\"state.0.old_dirs\": expected at most history_size (3) entries, "
                        "found 4"));
  EXPECT_THAT(refusal(with_option("history_size", 0)),
              HasSubstr("\"param_groups.0.history_size\": expected an integer of 1 or more, "
                        "found 0"));
  EXPECT_THAT(refusal(with_option("max_eval", Value())),
              HasSubstr("\"param_groups.0.max_eval\": expected an integer of 0 or more, found "
                        "null"));
  EXPECT_THAT(refusal(with_option("line_search_fn", 1)),
              HasSubstr("\"param_groups.0.line_search_fn\": expected a string or null, found 1"));
}

TEST(Lbfgs, RefusesStateOfOtherParametersThanTheFirst) {
  TensorDict source = lbfgs_state();
  source["state"].set("1", source["state"]["0"]);
  EXPECT_THAT(refusal(source), HasSubstr("not in the target (1): \"state.1\""));
}

TEST(Lbfgs, RefusesParametersInAnotherOrder) {
  struct Layer : torch::nn::Module {
    Layer() { register_module("linear", linear); }
    torch::nn::Linear linear{3, 2};
  } layer;
  Params params = layer.parameters();
  LBFGS saved(params, options());
  step(saved);
  const TensorDict tree = state_dict(saved, layer);
  EXPECT_TRUE(load_into(saved, layer, tree).ok());
  LBFGS reversed(Params(params.rbegin(), params.rend()), options());
  EXPECT_THAT(thrown_by([&] { load_into(reversed, layer, tree); }).message,
              HasSubstr("\"param_groups.0.params\": expected the parameters in the order in which "
                        "they were saved, found another order"));
}

}  // namespace
}  // namespace tenfold
