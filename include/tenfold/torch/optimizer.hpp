#pragma once

/// Saves and loads the state of torch::optim's optimizers. Part of tenfold/torch.hpp, which
/// declares the public functions.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/torch.hpp>
#include <tenfold/torch/optimizer_filling.hpp>
#include <tenfold/torch/optimizer_kinds.hpp>
#include <tenfold/torch/optimizer_pairing.hpp>
#include <tenfold/torch/optimizer_saving.hpp>
#include <tenfold/torch/optimizer_source.hpp>

namespace tenfold {
namespace torch_detail {

/// A load into an optimizer: the constructor only compares; apply() changes the optimizer.
template <class Options, class Optimizer>
class OptimizerPlan {
 public:
  /// Compares the optimizer with the source. `names`: names of the optimizer's parameters; nullopt
  /// if they have none.
  OptimizerPlan(Optimizer& optimizer, const std::optional<GroupNames>& names,
                const TensorDict& source, const LoadIntoOptions& options)
      : optimizer_(optimizer), source_(source), load_options_(options) {
    const std::vector<SourceGroup> groups = source_groups(source);
    states_ = part_of_source(source, source, "state", "state");
    pair(names, groups);
    compare_tensors();
  }

  LoadReport& report() { return report_; }

  void apply() {
    NamedTensors targets;
    for (Parameter& parameter : parameters_) {
      if (!parameter.fits) continue;
      for (NamedTensor& target : parameter.targets) targets.push_back(std::move(target));
    }
    load_into_tensors(targets, source_, tensor_options());
    for (auto& [options, planned] : options_) *options = planned;
    for (Parameter& parameter : parameters_) {
      if (!parameter.fits) continue;
      if (parameter.state == nullptr) {
        optimizer_.state().erase(parameter.key);
      } else {
        optimizer_.state()[parameter.key] = std::move(parameter.state);
      }
    }
  }

 private:
  using State = typename OptimizerKind<Options>::State;
  using Parameter = PlannedState<State>;
  using Params = std::vector<at::Tensor>;

  void mismatch(const std::string& name, std::string expected, std::string found) {
    report_.mismatched.push_back({name, std::move(expected), std::move(found)});
  }

  void pair(const std::optional<GroupNames>& names, const std::vector<SourceGroup>& groups) {
    const auto numbers = numbers_of(optimizer_);
    const OptimizerPairing pairing = pairing_of(names, groups, numbers);
    for (std::size_t g = 0; g < pairing.groups.size(); ++g) {
      if (!pairing.groups[g]) {
        // If paired by name, the group keeps its options, and its parameters get states. If paired
        // by order, the source has no group of the same size at this position; pair_by_order() has
        // reported this, and the group gets neither options nor states.
        if (pairing.numbers[g].size() == numbers[g].size()) {
          auto& kept = optimizer_.param_groups()[g];
          plan_states(pairing.numbers[g], kept, static_cast<const Options&>(kept.options()),
                      numbers[g]);
        }
        continue;
      }
      const SourceGroup& group = groups[*pairing.groups[g]];
      const std::string name = "param_groups." + std::to_string(g);
      if (kHasOneState<Options> && pairing.numbers[g] != group.numbers) {
        mismatch(name + ".params", "the parameters in the order in which they were saved",
                 "another order");
        continue;
      }
      plan_group(group.options, pairing.numbers[g], optimizer_.param_groups()[g], numbers[g], name);
    }
    std::unordered_set<std::string> known;
    for (const SourceGroup& group : groups) {
      const std::size_t count = with_state(group.numbers.size());
      known.insert(group.numbers.begin(),
                   group.numbers.begin() + static_cast<std::ptrdiff_t>(count));
    }
    for (const std::string& number : states_.keys()) {
      if (!known.contains(number)) report_.unexpected.push_back("state." + number);
    }
  }

  /// The number of parameters of a group that may have a state: LBFGS stores one state for all
  /// parameters.
  static std::size_t with_state(std::size_t num_params) {
    return kHasOneState<Options> ? std::min<std::size_t>(num_params, 1) : num_params;
  }

  /// Pairs by name if the parameters of both the optimizer and the source have unique names, else
  /// by order.
  OptimizerPairing pairing_of(const std::optional<GroupNames>& names,
                              const std::vector<SourceGroup>& groups,
                              const std::vector<std::vector<std::int64_t>>& numbers) {
    if (names && are_unique(*names)) {
      const auto found = names_in(source_, groups, load_options_);
      if (found && are_unique(*found)) return pair_by_name(*names, groups, *found, report_);
    }
    if (load_options_.rename) {
      throw refuse_source(source_)
          .part("rename")
          .problem("it does not apply to an optimizer whose parameters are matched by order")
          .expected(
              "unique parameter names, from \"param_names\" in the source and a module as argument")
          .found("no names, or duplicates");
    }
    std::vector<std::size_t> counts;
    for (const auto& of_group : numbers) counts.push_back(of_group.size());
    return pair_by_order(counts, groups, report_);
  }

  /// Plans the options and the states of one group. `found`: for each parameter, the number of the
  /// paired parameter of the source, which is the key of its state; "" if there is none.
  template <class Group>
  void plan_group(const TensorDict& source, const std::vector<std::string>& found, Group& group,
                  const std::vector<std::int64_t>& numbers, const std::string& name) {
    auto& options = static_cast<Options&>(group.options());
    Options planned = options;
    std::unordered_set<std::string> known = {"params"};
    for_each_option(planned, [&](std::string_view key, auto& option) {
      known.emplace(key);
      plan_option(source, key, option, name + '.' + std::string(key));
    });
    for (const std::string& key : source.keys()) {
      if (!known.contains(key)) plan_foreign_option(source, key, name + '.' + key);
    }
    plan_states(found, group, planned, numbers);
    options_.emplace_back(&options, std::move(planned));
  }

  template <class Group>
  void plan_states(const std::vector<std::string>& found, Group& group, const Options& options,
                   const std::vector<std::int64_t>& numbers) {
    for (std::size_t i = 0; i < with_state(numbers.size()); ++i) {
      if (found[i].empty()) continue;
      plan_state(group.params()[i], group.params(), options, "state." + std::to_string(numbers[i]),
                 found[i]);
    }
  }

  template <class Option>
  void plan_option(const TensorDict& group, std::string_view key, Option& option,
                   const std::string& name) {
    if (!group.contains(key)) {
      if constexpr (std::is_same_v<Option, bool>) {
        option = false;  // the file was saved before the option existed
      } else {
        report_.missing.push_back(name);
      }
    } else if (read_option(group, key, option)) {
      report_.loaded.push_back(name);
    } else {
      mismatch(name, expected_text(option, key), text_of(group.get(key)));
    }
  }

  /// Reports an option of the source that LibTorch does not have as ignored, unexpected or
  /// different.
  void plan_foreign_option(const TensorDict& group, const std::string& key,
                           const std::string& name) {
    using Kind = OptimizerKind<Options>;
    if (key == "param_names" || key == "initial_lr" || changes_no_result(key)) {
      report_.ignored.push_back(name);
      return;
    }
    if (key != "maximize" && key != "decoupled_weight_decay") {
      report_.unexpected.push_back(name);
      return;
    }
    const NonTensor does{value_of_libtorch(key, Kind::kDecoupled)};
    const TensorDict::Item wanted = group.get(key);
    const auto* json = std::get_if<NonTensor>(&wanted);
    if (json != nullptr && *json == does) {
      report_.ignored.push_back(name);
    } else {
      mismatch(name, text_of(does) + ", the only value that LibTorch supports", text_of(wanted));
    }
  }

  void plan_state(const at::Tensor& param, const Params& params, const Options& options,
                  const std::string& name, const std::string& number) {
    void* const key = param.unsafeGetTensorImpl();
    const auto [first, is_new] = position_of_.emplace(number, parameters_.size());
    if (!is_new) {
      const Parameter& other = parameters_[first->second];
      if (other.key != key) mismatch(name, "state of its own", "that of " + other.name);
      return;
    }
    Parameter& planned = parameters_.emplace_back();
    planned.key = key;
    planned.name = name;
    planned.source_name = "state." + number;
    if (states_.contains(number) && !is_null(states_.get(number))) {
      fill_state(planned, param, params, options, states_[number]);
    } else if constexpr (std::is_same_v<Options, torch::optim::AdagradOptions>) {
      report_.missing.push_back(name);  // LibTorch's Adagrad cannot step without a state
      planned.fits = false;
    }
  }

  void fill_state(Parameter& planned, const at::Tensor& param, const Params& params,
                  const Options& options, const TensorDict& saved) {
    const auto found = optimizer_.state().find(planned.key);
    const bool exists = found != optimizer_.state().end() && found->second != nullptr;
    planned.state = exists ? std::make_unique<State>(static_cast<State&>(*found->second))
                           : std::make_unique<State>();
    StateFilling<Options>(planned, param, params, options, saved, report_).fill();
    // LibTorch's SGD assumes that an existing state has a momentum buffer.
    if constexpr (std::is_same_v<Options, torch::optim::SGDOptions>) {
      if (planned.targets.empty()) planned.state = nullptr;
    }
  }

  /// The load options for the tensors of states. The names of these tensors contain numbers of
  /// parameters, so `rename`, which maps names of parameters, is not applied to them.
  LoadIntoOptions tensor_options() const {
    LoadIntoOptions options = load_options_;
    options.strict = false;
    options.rename = {};
    options.renamed = {};
    return options;
  }

  /// Compares the dtypes and shapes of the state tensors, as load_into() does for modules.
  void compare_tensors() {
    NamedTensors targets;
    std::unordered_map<std::string, std::pair<std::size_t, std::string>> names;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Parameter& parameter = parameters_[i];
      for (const NamedTensor& target : parameter.targets) {
        const std::string key = target.name.substr(parameter.source_name.size());
        names[target.name] = {i, parameter.name + key};
        targets.push_back(target);
      }
    }
    LoadIntoOptions checking = tensor_options();
    checking.dry_run = true;
    LoadReport found = load_into_tensors(targets, source_, checking);
    for (LoadReport::Mismatch& mismatch : found.mismatched) {
      const auto& [parameter, name] = names.at(mismatch.name);
      parameters_[parameter].fits = false;
      mismatch.name = name;
      report_.mismatched.push_back(std::move(mismatch));
    }
    for (const Parameter& parameter : parameters_) {
      if (!parameter.fits) continue;
      for (const std::string& value : parameter.values) {
        report_.loaded.push_back(parameter.name + '.' + value);
      }
    }
    for (const std::string& loaded : found.loaded) {
      const auto& [parameter, name] = names.at(loaded);
      if (parameters_[parameter].fits) report_.loaded.push_back(name);
    }
  }

  Optimizer& optimizer_;
  const TensorDict& source_;
  TensorDict states_;
  const LoadIntoOptions& load_options_;
  LoadReport report_;
  std::vector<Parameter> parameters_;
  // Maps a parameter's number in the source to an index in parameters_.
  std::unordered_map<std::string, std::size_t> position_of_;
  std::vector<std::pair<Options*, Options>> options_;
};

inline void refuse_keys(const LoadIntoOptions& options) {
  if (!options.keys.given()) return;
  throw Error(ErrorCode::invalid_argument)
      .part("keys")
      .problem("they do not apply to an optimizer, whose state is loaded whole")
      .expected("no selection")
      .found("a selection");
}

template <class Optimizer>
TensorDict optimizer_state(Optimizer& optimizer, const std::optional<GroupNames>& names) {
  TensorDict state;
  visit_kind(optimizer, [&]<class Options>() { state = state_of<Options>(optimizer, names); });
  return state;
}

template <class Optimizer>
LoadReport load_optimizer(Optimizer& optimizer, const std::optional<GroupNames>& names,
                          const TensorDict& source, const LoadIntoOptions& options) {
  refuse_keys(options);
  LoadReport report;
  visit_kind(optimizer, [&]<class Options>() {
    OptimizerPlan<Options, Optimizer> plan(optimizer, names, source, options);
    if (options.strict) require_ok(plan.report(), source.where());
    if (!options.dry_run) plan.apply();
    report = std::move(plan.report());
  });
  return report;
}

}  // namespace torch_detail

template <TorchOptimizer Optimizer>
TensorDict state_dict(Optimizer& optimizer) {
  return torch_detail::optimizer_state(optimizer, std::nullopt);
}

template <TorchOptimizer Optimizer, TorchModule Module>
TensorDict state_dict(Optimizer& optimizer, Module& module) {
  return torch_detail::optimizer_state(
      optimizer, torch_detail::names_of(optimizer, torch_detail::tensors_of(module)));
}

template <TorchOptimizer Optimizer>
LoadReport load_into(Optimizer& optimizer, const TensorDict& source,
                     const LoadIntoOptions& options) {
  return torch_detail::load_optimizer(optimizer, std::nullopt, source, options);
}

template <TorchOptimizer Optimizer>
LoadReport load_into(Optimizer& optimizer, const Path& source, const LoadIntoOptions& options) {
  return load_into(optimizer, open(source), options);
}

template <TorchOptimizer Optimizer, TorchModule Module>
LoadReport load_into(Optimizer& optimizer, Module& module, const TensorDict& source,
                     const LoadIntoOptions& options) {
  return torch_detail::load_optimizer(
      optimizer, torch_detail::names_of(optimizer, torch_detail::tensors_of(module)), source,
      options);
}

}  // namespace tenfold
