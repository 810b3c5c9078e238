#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim.h>
#include <tenfold/tenfold.hpp>
#include <tenfold/torch.hpp>

#include <string>
#include <vector>

#include "io/sample_trees.hpp"

namespace tenfold::test {

using Params = std::vector<at::Tensor>;

/// Parameters of two shapes, the same at each call.
inline Params parameters() {
  return {at::ones({2, 3}).requires_grad_(), at::full({4}, 2.0).requires_grad_()};
}

/// Steps with gradients that differ between steps and between elements.
inline void step(torch::optim::Optimizer& optimizer, int steps = 1) {
  for (int i = 1; i <= steps; ++i) {
    optimizer.step([&] {
      at::Tensor loss = at::zeros({});
      for (const auto& group : optimizer.param_groups()) {
        for (const at::Tensor& param : group.params()) {
          const at::Tensor count = at::arange(1, param.numel() + 1, at::kFloat).view(param.sizes());
          const at::Tensor values = param.detach();
          param.mutable_grad() = count.sin() * values / i + values.pow(3);
          loss += ((count.sin() * values.pow(2) / i) / 2 + values.pow(4) / 4).sum();
        }
      }
      return loss;
    });
  }
}

}  // namespace tenfold::test
