#pragma once

/// Builds an optimizer's state in the layout of Python's state_dict(). Part of tenfold/torch.hpp.

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tenfold/torch.hpp>
#include <tenfold/torch/optimizer_kinds.hpp>
#include <tenfold/torch/optimizer_pairing.hpp>

namespace tenfold::torch_detail {

inline Value value_of(const std::tuple<double, double>& betas) {
  return Value::Tuple{{Value(std::get<0>(betas)), Value(std::get<1>(betas))}};
}
inline Value value_of(double number) { return number; }
inline Value value_of(bool flag) { return flag; }
inline Value value_of(std::int64_t number) { return number; }
template <class Option>
Value value_of(const std::optional<Option>& option) {
  return option ? Value(*option) : Value();
}

/// A step count as a 0-d tensor: float32 as in Python, or float64 above 2^24, where float32 is not
/// exact.
inline Tensor step_tensor(std::int64_t step) {
  if (step <= std::int64_t{1} << 24) {
    const auto number = static_cast<float>(step);
    return Tensor::from(std::span(&number, 1), {});
  }
  const auto number = static_cast<double>(step);
  return Tensor::from(std::span(&number, 1), {});
}

inline TensorDict dict_node(bool int_keys = false) {
  NodeInfo info;
  info.kind = NodeKind::dict;
  info.int_keys = int_keys;
  return TensorDict(std::move(info));
}

/// The number of each parameter in the saved state, as in Python: its position in the concatenation
/// of all groups. A repeated parameter gets its first position (in Python, the last one).
template <class Optimizer>
std::vector<std::vector<std::int64_t>> numbers_of(Optimizer& optimizer) {
  std::unordered_map<const void*, std::int64_t> known;
  std::vector<std::vector<std::int64_t>> numbers;
  std::int64_t next = 0;
  for (auto& group : optimizer.param_groups()) {
    std::vector<std::int64_t>& of_group = numbers.emplace_back();
    for (const at::Tensor& param : group.params()) {
      of_group.push_back(known.emplace(param.unsafeGetTensorImpl(), next).first->second);
      ++next;
    }
  }
  return numbers;
}

/// An element of "param_groups". `names`: names of the parameters; null if they have none.
template <class Options>
Value group_value(Options& options, const std::vector<std::int64_t>& numbers,
                  const std::vector<std::string>* names) {
  using Kind = OptimizerKind<Options>;
  Value::Object group;
  for_each_option(options, [&](std::string_view name, const auto& option) {
    group.members.emplace_back(name, value_of(option));
  });
  for (const std::string_view name : Kind::kPythonOnly) {
    group.members.emplace_back(name, value_of_libtorch(name, Kind::kDecoupled));
  }
  if (names != nullptr) {
    Value::List list;
    for (const std::string& name : *names) list.items.emplace_back(name);
    group.members.emplace_back("param_names", std::move(list));
  }
  Value::List params;
  for (const std::int64_t number : numbers) params.items.emplace_back(number);
  group.members.emplace_back("params", std::move(params));
  return group;
}

/// Converts members of a parameter's state to entries of the saved state. item() returns nullopt if
/// Python's state does not have the member.
class StateItems {
 public:
  StateItems(std::int64_t number, MainMemory& memory)
      : path_("state." + std::to_string(number)), memory_(memory) {}

  std::optional<TensorDict::Item> item(std::string_view name, std::int64_t count) const {
    if (name == "step") return Leaf(step_tensor(count));
    return NonTensor{Value(count)};
  }
  std::optional<TensorDict::Item> item(std::string_view /*name*/, double number) const {
    return NonTensor{Value(number)};
  }
  std::optional<TensorDict::Item> item(std::string_view name, const at::Tensor& tensor) const {
    if (!tensor.defined()) return std::nullopt;
    // LBFGS initializes H_diag with 1, which is a plain number in Python.
    if (tensor.dim() == 0 && tensor.scalar_type() == at::kLong) {
      return NonTensor{Value(tensor.template item<std::int64_t>())};
    }
    return Leaf(memory_.tensor({path_ + '.' + std::string(name), tensor}, "optimizer"));
  }
  template <class Tensors>
    requires requires(const Tensors& list) { list.size(); }
  std::optional<TensorDict::Item> item(std::string_view name, const Tensors& tensors) const {
    if (std::none_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.defined(); })) {
      return NonTensor{Value(Value::List{std::vector<Value>(tensors.size())})};
    }
    NodeInfo info;
    info.kind = NodeKind::list;
    TensorDict list(std::move(info));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::string position = std::to_string(i);
      const auto found = item(std::string(name) + '.' + position, tensors[i]);
      list.set(position, found ? *found : TensorDict::Item(NonTensor{}));
    }
    return list;
  }
  template <class Member>
  std::optional<TensorDict::Item> item(std::string_view name,
                                       const std::optional<Member>& member) const {
    return member ? item(name, *member) : std::nullopt;
  }

 private:
  std::string path_;
  MainMemory& memory_;
};

template <class State>
TensorDict state_node(State& state, std::int64_t number, MainMemory& memory) {
  const StateItems items(number, memory);
  TensorDict node = dict_node();
  for_each_state(state, [&](std::string_view name, const auto& member) {
    // Before the first iteration, the state of Python's LBFGS has only two counters.
    if constexpr (requires { state.old_dirs(); }) {
      if (!state.d().defined() && name != "func_evals" && name != "n_iter") return;
    }
    if (const auto found = items.item(name, member)) node.set(name, *found);
  });
  return node;
}

template <class Options, class Optimizer>
TensorDict state_of(Optimizer& optimizer, const std::optional<GroupNames>& names) {
  using State = typename OptimizerKind<Options>::State;
  const auto numbers = numbers_of(optimizer);
  TensorDict states = dict_node(true);
  Value::List groups;
  MainMemory memory;
  for (std::size_t g = 0; g < numbers.size(); ++g) {
    auto& group = optimizer.param_groups()[g];
    groups.items.push_back(group_value(static_cast<Options&>(group.options()), numbers[g],
                                       names ? &(*names)[g] : nullptr));
    for (std::size_t i = 0; i < numbers[g].size(); ++i) {
      const auto found = optimizer.state().find(group.params()[i].unsafeGetTensorImpl());
      if (found == optimizer.state().end() || found->second == nullptr) continue;
      states.set(std::to_string(numbers[g][i]),
                 state_node(static_cast<State&>(*found->second), numbers[g][i], memory));
    }
  }
  TensorDict tree = dict_node();
  if (states.empty()) {
    tree.set("state", Value(Value::Object{}));
  } else {
    tree.set("state", std::move(states));
  }
  tree.set("param_groups", Value(std::move(groups)));
  return tree;
}

}  // namespace tenfold::torch_detail
