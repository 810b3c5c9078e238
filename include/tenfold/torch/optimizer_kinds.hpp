#pragma once

/// The options and states of torch::optim's optimizers, by Python's names. The optimizer classes
/// are only declared here and used in templates, so that a program without optimizers includes none
/// of LibTorch's optimizer headers.

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include <tenfold/error.hpp>
#include <tenfold/value.hpp>

namespace torch::optim {
class Adam;
class AdamW;
class SGD;
class RMSprop;
class Adagrad;
class LBFGS;
struct AdamOptions;
struct AdamWOptions;
struct SGDOptions;
struct RMSpropOptions;
struct AdagradOptions;
struct LBFGSOptions;
struct AdamParamState;
struct AdamWParamState;
struct SGDParamState;
struct RMSpropParamState;
struct AdagradParamState;
struct LBFGSParamState;
}  // namespace torch::optim

namespace tenfold::torch_detail {

/// The properties of the optimizer whose options are of class `Options`: the class of its state,
/// the options that only Python has, in Python's order, and whether its weight decay is decoupled.
template <class Options>
struct OptimizerKind;

template <>
struct OptimizerKind<torch::optim::AdamOptions> {
  using State = torch::optim::AdamParamState;
  static constexpr std::array<std::string_view, 6> kPythonOnly = {
      "maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"};
  static constexpr bool kDecoupled = false;
};

template <>
struct OptimizerKind<torch::optim::AdamWOptions> : OptimizerKind<torch::optim::AdamOptions> {
  using State = torch::optim::AdamWParamState;
  static constexpr bool kDecoupled = true;
};

template <>
struct OptimizerKind<torch::optim::SGDOptions> {
  using State = torch::optim::SGDParamState;
  static constexpr std::array<std::string_view, 4> kPythonOnly = {"maximize", "foreach",
                                                                  "differentiable", "fused"};
  static constexpr bool kDecoupled = false;
};

template <>
struct OptimizerKind<torch::optim::RMSpropOptions> {
  using State = torch::optim::RMSpropParamState;
  static constexpr std::array<std::string_view, 4> kPythonOnly = {"capturable", "foreach",
                                                                  "maximize", "differentiable"};
  static constexpr bool kDecoupled = false;
};

template <>
struct OptimizerKind<torch::optim::AdagradOptions> {
  using State = torch::optim::AdagradParamState;
  static constexpr std::array<std::string_view, 4> kPythonOnly = {"foreach", "maximize",
                                                                  "differentiable", "fused"};
  static constexpr bool kDecoupled = false;
};

/// All parameters share one state, stored as the state of the first parameter. The vectors of this
/// state concatenate the elements of all parameters.
template <>
struct OptimizerKind<torch::optim::LBFGSOptions> {
  using State = torch::optim::LBFGSParamState;
  static constexpr std::array<std::string_view, 0> kPythonOnly = {};
  static constexpr bool kDecoupled = false;
};

template <class Options>
inline constexpr bool kHasOneState = std::is_same_v<Options, torch::optim::LBFGSOptions>;

/// For a Python option that LibTorch lacks, returns the value that describes LibTorch's behaviour.
inline Value value_of_libtorch(std::string_view option, bool decoupled) {
  if (option == "foreach" || option == "fused") return {};
  return option == "decoupled_weight_decay" && decoupled;
}

/// True for options that do not change the result of a step.
inline bool changes_no_result(std::string_view option) {
  return option == "foreach" || option == "fused" || option == "capturable" ||
         option == "differentiable";
}

/// Calls visit(name, option) for each option that the class `Options` has.
template <class Options, class Visitor>
void for_each_option(Options& options, const Visitor& visit) {
  if constexpr (requires { options.lr(); }) visit("lr", options.lr());
  if constexpr (requires { options.betas(); }) visit("betas", options.betas());
  if constexpr (requires { options.lr_decay(); }) visit("lr_decay", options.lr_decay());
  if constexpr (requires { options.momentum(); }) visit("momentum", options.momentum());
  if constexpr (requires { options.dampening(); }) visit("dampening", options.dampening());
  if constexpr (requires { options.alpha(); }) visit("alpha", options.alpha());
  if constexpr (requires { options.eps(); }) visit("eps", options.eps());
  if constexpr (requires { options.centered(); }) visit("centered", options.centered());
  if constexpr (requires { options.weight_decay(); }) visit("weight_decay", options.weight_decay());
  if constexpr (requires { options.initial_accumulator_value(); }) {
    visit("initial_accumulator_value", options.initial_accumulator_value());
  }
  if constexpr (requires { options.nesterov(); }) visit("nesterov", options.nesterov());
  if constexpr (requires { options.amsgrad(); }) visit("amsgrad", options.amsgrad());
  if constexpr (requires { options.history_size(); }) {
    visit("max_iter", options.max_iter());
    visit("max_eval", options.max_eval());
    visit("tolerance_grad", options.tolerance_grad());
    visit("tolerance_change", options.tolerance_change());
    visit("history_size", options.history_size());
    visit("line_search_fn", options.line_search_fn());
  }
}

/// Calls visit(name, member) for each member of the state of a parameter: std::int64_t counters,
/// and tensors, which may be undefined; for LBFGS also floating-point numbers and lists of tensors.
template <class State, class Visitor>
void for_each_state(State& state, const Visitor& visit) {
  if constexpr (requires { state.step(); }) visit("step", state.step());
  if constexpr (requires { state.exp_avg(); }) visit("exp_avg", state.exp_avg());
  if constexpr (requires { state.exp_avg_sq(); }) visit("exp_avg_sq", state.exp_avg_sq());
  if constexpr (requires { state.max_exp_avg_sq(); }) {
    visit("max_exp_avg_sq", state.max_exp_avg_sq());
  }
  if constexpr (requires { state.square_avg(); }) visit("square_avg", state.square_avg());
  if constexpr (requires { state.momentum_buffer(); }) {
    visit("momentum_buffer", state.momentum_buffer());
  }
  if constexpr (requires { state.grad_avg(); }) visit("grad_avg", state.grad_avg());
  if constexpr (requires { state.sum(); }) visit("sum", state.sum());
  if constexpr (requires { state.old_dirs(); }) {
    visit("func_evals", state.func_evals());
    visit("n_iter", state.n_iter());
    visit("al", state.al());
    visit("d", state.d());
    visit("t", state.t());
    visit("old_dirs", state.old_dirs());
    visit("old_stps", state.old_stps());
    visit("ro", state.ro());
    visit("H_diag", state.H_diag());
    visit("prev_flat_grad", state.prev_flat_grad());
    visit("prev_loss", state.prev_loss());
  }
}

/// True if LibTorch's next step fails or goes wrong when an existing state lacks that member.
template <class Options>
bool needs(const Options& options, std::string_view state) {
  if (state == "max_exp_avg_sq") {
    if constexpr (requires { options.amsgrad(); }) return options.amsgrad();
  }
  if (state == "grad_avg" || state == "momentum_buffer") {
    if constexpr (requires { options.centered(); }) {
      return state == "grad_avg" ? options.centered() : options.momentum() > 0;
    }
    return false;  // SGD starts a new momentum
  }
  return true;
}

/// `Options` as a dependent name, looked up when `Optimizer` is known.
template <class Optimizer, class Options>
struct Late {
  using type = Options;
};

[[noreturn]] inline void refuse_optimizer(const char* found) {
  throw Error(ErrorCode::unsupported)
      .part("optimizer")
      .problem("its state is not supported")
      .expected("torch::optim::Adam, AdamW, SGD, RMSprop, Adagrad or LBFGS")
      .found(found);
}

/// If the optimizer's options are of class `Options`, calls visit.template operator()<Options>()
/// and returns true.
template <class Options, class Optimizer, class Visitor>
bool visit_if(Optimizer& optimizer, const Visitor& visit) {
  static_assert(requires { sizeof(Options); }, "#include <torch/optim.h>");
  if (dynamic_cast<const Options*>(&optimizer.param_groups().front().options()) == nullptr) {
    return false;
  }
  visit.template operator()<Options>();
  return true;
}

/// Calls visit.template operator()<Options>() with the class of the options of `optimizer`.
template <class Optimizer, class Visitor>
void visit_kind(Optimizer& optimizer, const Visitor& visit) {
  if constexpr (std::is_base_of_v<torch::optim::Adam, Optimizer>) {
    visit.template operator()<torch::optim::AdamOptions>();
  } else if constexpr (std::is_base_of_v<torch::optim::AdamW, Optimizer>) {
    visit.template operator()<torch::optim::AdamWOptions>();
  } else if constexpr (std::is_base_of_v<torch::optim::SGD, Optimizer>) {
    visit.template operator()<torch::optim::SGDOptions>();
  } else if constexpr (std::is_base_of_v<torch::optim::RMSprop, Optimizer>) {
    visit.template operator()<torch::optim::RMSpropOptions>();
  } else if constexpr (std::is_base_of_v<torch::optim::Adagrad, Optimizer>) {
    visit.template operator()<torch::optim::AdagradOptions>();
  } else if constexpr (std::is_base_of_v<torch::optim::LBFGS, Optimizer>) {
    visit.template operator()<torch::optim::LBFGSOptions>();
  } else {
    using namespace torch::optim;  // NOLINT(google-build-using-namespace)
    if (optimizer.param_groups().empty()) refuse_optimizer("an optimizer without groups");
    const bool known = visit_if<typename Late<Optimizer, AdamOptions>::type>(optimizer, visit) ||
                       visit_if<typename Late<Optimizer, AdamWOptions>::type>(optimizer, visit) ||
                       visit_if<typename Late<Optimizer, SGDOptions>::type>(optimizer, visit) ||
                       visit_if<typename Late<Optimizer, RMSpropOptions>::type>(optimizer, visit) ||
                       visit_if<typename Late<Optimizer, AdagradOptions>::type>(optimizer, visit) ||
                       visit_if<typename Late<Optimizer, LBFGSOptions>::type>(optimizer, visit);
    if (!known) refuse_optimizer("another class");
  }
}

}  // namespace tenfold::torch_detail
