#include "dataset/supplied_memory.hpp"

#include <algorithm>
#include <utility>

namespace tenfold {
namespace {

/// The greatest number of unused blocks, more than concurrent batches need. Beyond this, the oldest
/// blocks are dropped, because batches no longer request their sizes.
constexpr std::size_t kMaxBlocks = 64;

}  // namespace

void SuppliedMemory::supply(Buffer block) {
  Buffer dropped;  // released after the mutex, because its owner may run any code
  const std::lock_guard lock(mutex_);
  if (blocks_.size() == kMaxBlocks) {
    dropped = std::move(blocks_.front());
    blocks_.erase(blocks_.begin());
  }
  blocks_.push_back(std::move(block));
}

std::optional<Buffer> SuppliedMemory::take(std::size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  requested_.push_back(size_bytes);
  auto best = blocks_.end();
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    if (block->size_bytes() < size_bytes) continue;
    if (best == blocks_.end() || block->size_bytes() < best->size_bytes()) best = block;
  }
  if (best == blocks_.end()) return std::nullopt;
  Buffer taken = best->slice(0, size_bytes);
  blocks_.erase(best);
  return taken;
}

std::vector<std::size_t> SuppliedMemory::requested() {
  const std::lock_guard lock(mutex_);
  return std::exchange(requested_, {});
}

}  // namespace tenfold
