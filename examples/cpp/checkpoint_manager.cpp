// Saves checkpoints of a training run, and keeps the newest two and the best one.
#include <tenfold/checkpoint_manager.hpp>

#include <iostream>

int main() {
  tenfold::CheckpointManager manager("run", {.max_to_keep = 2, .best = "loss"});
  for (int step = 1; step <= 5; ++step) {
    tenfold::TensorDict model;
    model.set("weight", tenfold::Tensor::scalar(static_cast<float>(step)));
    const auto state = tenfold::TensorDict::dict({{"model", model}, {"epoch", step}});
    manager.save(step, state, {.metrics = {{"loss", step == 2 ? 0.1 : 1.0}}});
  }
  const tenfold::RestoredCheckpoint last = manager.restore();
  std::cout << "step " << last.info.step << '\n' << last.state << '\n';
  return last.info.step == 5 && last.state.value<int>("epoch") == 5 && manager.best_step() == 2 &&
                 manager.all_steps().size() == 3
             ? 0
             : 1;
}
