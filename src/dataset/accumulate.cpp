#include <tenfold/accumulate.hpp>

#include <string>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "dataset/loader/batch_stream.hpp"

namespace tenfold {

Windows::Windows(std::shared_ptr<BatchLoader> loader, std::int64_t steps)
    : loader_(std::move(loader)), steps_(steps) {
  if (steps < 1) {
    throw base::invalid_argument().part("accumulate: steps").expected("at least 1").found(steps);
  }
}

std::optional<Window> Windows::next(BatchStream& stream) {
  std::vector<WeightedBatch> batches;
  std::int64_t rows = 0;
  const std::int64_t begin = stream.position();
  while (static_cast<std::int64_t>(batches.size()) < steps_) {
    std::optional<Batch> batch = loader_->next(stream);
    if (!batch) break;
    rows += batch->num_rows();
    batches.push_back({std::move(*batch), 0});
  }
  if (batches.empty()) return std::nullopt;
  // The stream's position counts the rows of all ranks, so the ranks need not communicate.
  const auto of_all_ranks = static_cast<double>(stream.position() - begin);
  const auto world_size = static_cast<double>(loader_->options().world_size);
  for (WeightedBatch& weighted : batches) {
    weighted.weight = static_cast<double>(weighted.batch.num_rows()) * world_size / of_all_ranks;
  }
  return Window(std::move(batches), rows);
}

Windows accumulate(BatchLoader& loader, std::int64_t steps) {
  // This pointer does not own the loader, which must outlive the windows.
  return {std::shared_ptr<BatchLoader>(std::shared_ptr<void>(), &loader), steps};
}

Windows accumulate(BatchLoader&& loader, std::int64_t steps) {
  return {std::make_shared<BatchLoader>(std::move(loader)), steps};
}

}  // namespace tenfold
