#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <tenfold/checkpoint_manager.hpp>

#include "support/values.hpp"

namespace tenfold::test {

/// The state of a training run at `step`. The first element of each tensor and the epoch equal
/// `step`.
inline TensorDict state_at(std::int64_t step) {
  NodeInfo dict;
  dict.kind = NodeKind::dict;
  const auto numbers = [&](float offset) {
    const std::vector<float> values = {static_cast<float>(step), offset, -offset};
    return Tensor::from(std::span<const float>(values), {3});
  };
  TensorDict model(dict);
  model.set("weight", numbers(1));
  model.set("bias", numbers(2));
  TensorDict optimizer(dict);
  optimizer.set("momentum", numbers(3));
  optimizer.set("lr", Value(0.5));
  TensorDict state(dict);
  state.set("model", model);
  state.set("optimizer", optimizer);
  state.set("epoch", Value(step));
  return state;
}

/// Returns true if the tensors and the epoch are those of state_at(step).
inline bool is_state_of(const TensorDict& state, std::int64_t step) {
  const auto is = [&](const char* entry, const char* key, float offset) {
    return values<float>(state.at(entry, key)) ==
           std::vector<float>{static_cast<float>(step), offset, -offset};
  };
  return state.keys() == std::vector<std::string>{"model", "optimizer", "epoch"} &&
         is("model", "weight", 1) && is("model", "bias", 2) && is("optimizer", "momentum", 3) &&
         state.value("epoch") == Value(step);
}

}  // namespace tenfold::test
