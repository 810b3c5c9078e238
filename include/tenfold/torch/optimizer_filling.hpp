#pragma once

/// Builds the new state of one parameter from the saved one. Part of tenfold/torch.hpp.

#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/torch.hpp>
#include <tenfold/torch/optimizer_kinds.hpp>
#include <tenfold/torch/optimizer_source.hpp>

namespace tenfold::torch_detail {

/// Returns an uninitialized tensor like `param`, to be filled by the load.
inline at::Tensor empty_like_param(const at::Tensor& param) {
  const at::Tensor values = param.detach();
  return values.is_non_overlapping_and_dense()
             ? values.new_empty_strided(values.sizes(), values.strides())
             : values.new_empty(values.sizes());
}

/// Returns an uninitialized tensor for LBFGS, of the promoted dtype of `params` and the device of
/// the first one. If `is_vector`, it has one element for each element of `params`; otherwise it is
/// 0-d.
inline at::Tensor empty_like_all(const std::vector<at::Tensor>& params, bool is_vector) {
  std::int64_t numel = 0;
  c10::ScalarType dtype = params.front().scalar_type();
  for (const at::Tensor& param : params) {
    numel += param.numel();
    dtype = c10::promoteTypes(dtype, param.scalar_type());
  }
  const at::Tensor like = params.front().detach();
  const c10::TensorOptions options = like.options().dtype(dtype);
  return is_vector ? like.new_empty({numel}, options) : like.new_empty({}, options);
}

inline std::string shape_text(c10::IntArrayRef shape) {
  std::string text;
  for (const std::int64_t length : shape)
    text += (text.empty() ? "" : ", ") + std::to_string(length);
  return '[' + text + ']';
}

/// The planned state of one parameter.
template <class State>
struct PlannedState {
  void* key = nullptr;              // key in the optimizer's states
  std::unique_ptr<State> state;     // the new state; null if there is none
  NamedTensors targets;             // its tensors, by name in the source
  std::vector<std::string> values;  // the names of its members that are not in `targets`
  std::string name;                 // "state.0", in the target
  std::string source_name;          // "state.0", in the source
  bool fits = true;                 // the saved state fits the parameter
};

/// Fills a state from the saved one. If required members are missing, or members do not fit,
/// reports them and sets `planned.fits` to false. Afterwards `planned.targets` are the tensors of
/// the new state whose values must still be loaded.
template <class Options>
class StateFilling {
 public:
  using State = typename OptimizerKind<Options>::State;
  using Params = std::vector<at::Tensor>;

  /// `param` is one of `params`, the parameters of its group.
  StateFilling(PlannedState<State>& planned, const at::Tensor& param, const Params& params,
               const Options& options, const TensorDict& saved, LoadReport& report)
      : planned_(planned),
        param_(param),
        params_(params),
        options_(options),
        saved_(saved),
        report_(report) {}

  void fill() {
    std::unordered_set<std::string> known;
    for_each_state(*planned_.state, [&](std::string_view key, auto& member) {
      known.emplace(key);
      std::optional<TensorDict::Item> found;
      if (saved_.contains(key)) found = saved_.get(key);
      if (found && is_null(*found)) found.reset();
      if (!found && is_needed(key)) {
        report_.missing.push_back(planned_.name + '.' + std::string(key));
        planned_.fits = false;
      }
      using Member = std::decay_t<decltype(member)>;
      if (found) {
        fill_member(std::string(key), *found, member);
      } else if constexpr (!std::is_same_v<Member, std::int64_t>) {
        member = Member();
      }
    });
    for (const std::string& key : saved_.keys()) {
      if (!known.contains(key)) report_.unexpected.push_back(planned_.name + '.' + key);
    }
    if constexpr (kHasOneState<Options>) compare_histories();
  }

 private:
  void mismatch(const std::string& key, std::string expected, std::string found) {
    report_.mismatched.push_back(
        {planned_.name + '.' + key, std::move(expected), std::move(found)});
    planned_.fits = false;
  }

  /// True if the saved state must have that member: LibTorch's next step would fail or go wrong
  /// without it.
  bool is_needed(std::string_view key) const {
    if constexpr (kHasOneState<Options>) {
      if (key == "al") return false;  // LBFGS creates a missing list
      return key == "func_evals" || key == "n_iter" || planned_.state->n_iter() > 0;
    } else {
      return needs(options_, key);
    }
  }

  void fill_member(const std::string& key, const TensorDict::Item& saved, std::int64_t& member) {
    const std::optional<double> number = number_in(saved);
    constexpr double kMost = 9007199254740992.0;  // 2^53: doubles hold every integer up to it
    if (number && *number >= 0 && *number <= kMost && *number == std::floor(*number)) {
      member = static_cast<std::int64_t>(*number);
      planned_.values.push_back(key);
    } else {
      mismatch(key, "an integer from 0 to 2^53", number ? to_json(Value(*number)) : text_of(saved));
    }
  }

  void fill_member(const std::string& key, const TensorDict::Item& saved, double& member) {
    const std::optional<double> number = number_in(saved);
    if (!number) return mismatch(key, "a number", text_of(saved));
    member = *number;
    planned_.values.push_back(key);
  }

  void fill_member(const std::string& key, const TensorDict::Item& saved, at::Tensor& member) {
    if constexpr (kHasOneState<Options>) {
      fill_of_all(key, saved, member);
    } else if (!std::holds_alternative<Leaf>(saved)) {
      mismatch(key, "a tensor", text_of(saved));
    } else {
      if (!member.defined() || member.sizes() != param_.sizes()) member = empty_like_param(param_);
      planned_.targets.push_back({planned_.source_name + '.' + key, member});
    }
  }

  /// Fills a tensor of LBFGS, which has one state for all parameters. `key` is "d", "H_diag",
  /// "old_dirs.3" (an element of a list) or similar.
  void fill_of_all(const std::string& key, const TensorDict::Item& saved, at::Tensor& member) {
    const bool is_vector = key == "d" || key == "prev_flat_grad" || key.starts_with("old_");
    const at::Tensor made = empty_like_all(params_, is_vector);
    const auto* json = std::get_if<NonTensor>(&saved);
    const auto* one = json == nullptr ? nullptr : json->value.get_if<std::int64_t>();
    if (key == "H_diag" && one != nullptr) {  // while there is no history
      member = made.new_empty({}, made.options().dtype(at::kLong)).fill_(*one);
      planned_.values.push_back(key);
      return;
    }
    const auto* leaf = std::get_if<Leaf>(&saved);
    if (leaf == nullptr || c10::IntArrayRef(leaf->shape()) != made.sizes()) {
      const std::string other = key == "H_diag" ? ", or an integer" : "";
      return mismatch(key, "a tensor of shape " + shape_text(made.sizes()) + other, text_of(saved));
    }
    const bool exists = member.defined() && member.sizes() == made.sizes() &&
                        member.scalar_type() == made.scalar_type();
    if (!exists) member = made;
    planned_.targets.push_back({planned_.source_name + '.' + key, member});
  }

  template <class Tensors>
    requires std::is_same_v<Tensors, std::deque<at::Tensor>> ||
             std::is_same_v<Tensors, std::vector<at::Tensor>>
  void fill_member(const std::string& key, const TensorDict::Item& saved, Tensors& member) {
    const auto* json = std::get_if<NonTensor>(&saved);
    const bool is_list = json == nullptr ? std::holds_alternative<TensorDict>(saved)
                                         : json->value.template is<Value::List>();
    if (!is_list) return mismatch(key, "a list of tensors", text_of(saved));
    const TensorDict list = saved_[key];
    if (static_cast<std::int64_t>(list.size()) > options_.history_size()) {
      const std::string most = std::to_string(options_.history_size());
      return mismatch(key, "at most history_size (" + most + ") entries",
                      std::to_string(list.size()));
    }
    member.resize(list.size());
    std::size_t position = 0;
    for (const std::string& name : list.keys()) {
      at::Tensor& tensor = member[position++];
      if (is_null(list.get(name)) && key == "al") {
        tensor = at::Tensor();
      } else {
        fill_of_all(key + '.' + name, list.get(name), tensor);
      }
    }
    if (list.empty()) planned_.values.push_back(key);
  }

  template <class Member>
  void fill_member(const std::string& key, const TensorDict::Item& saved,
                   std::optional<Member>& member) {
    if (!member) member.emplace();
    fill_member(key, saved, *member);
  }

  /// Compares the lengths of LBFGS's lists, because LBFGS indexes them by the same position.
  void compare_histories() {
    const State& state = *planned_.state;
    const std::size_t length = state.old_dirs().size();
    for (const auto& [key, found] :
         {std::pair("old_stps", state.old_stps().size()), {"ro", state.ro().size()}}) {
      if (found != length && planned_.fits) {
        mismatch(key, "as many entries as old_dirs (" + std::to_string(length) + ")",
                 std::to_string(found));
      }
    }
    const auto wanted = static_cast<std::size_t>(options_.history_size());
    if (planned_.fits && state.al() && state.al()->size() != wanted) {
      mismatch("al", "history_size (" + std::to_string(wanted) + ") entries",
               std::to_string(state.al()->size()));
    }
  }

  PlannedState<State>& planned_;
  const at::Tensor& param_;
  const Params& params_;
  const Options& options_;
  const TensorDict& saved_;
  LoadReport& report_;
};

}  // namespace tenfold::torch_detail
