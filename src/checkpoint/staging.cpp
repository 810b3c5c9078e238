#include "checkpoint/staging.hpp"

#include <new>
#include <utility>
#include <vector>

#include "core/tree/aliases.hpp"
#include "io/tree.hpp"
#include "os/memory/allocation.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::checkpoint {

/// Unused blocks, by size.
struct StagingPool::Free {
  std::mutex mutex;
  std::multimap<std::size_t, Buffer> blocks;
  std::uint64_t num_bytes = 0;

  void drop_all() {
    std::multimap<std::size_t, Buffer> dropped;
    const std::lock_guard lock(mutex);
    dropped.swap(blocks);
    num_bytes = 0;
  }
};

StagingPool::StagingPool() : free_(std::make_shared<Free>()) {}

std::uint64_t StagingPool::kept_bytes() const {
  const std::lock_guard lock(free_->mutex);
  return free_->num_bytes;
}

Buffer StagingPool::take(std::size_t size_bytes) {
  Buffer block;
  {
    const std::lock_guard lock(free_->mutex);
    const auto found = free_->blocks.find(size_bytes);
    if (found != free_->blocks.end()) {
      block = std::move(found->second);
      free_->blocks.erase(found);
      free_->num_bytes -= size_bytes;
    }
  }
  if (block.size_bytes() != size_bytes) block = Buffer::allocate(size_bytes);
  const auto bytes = block.mutable_bytes();
  // The deleter returns the block to the pool when the last Buffer that owns it is destroyed.
  const std::weak_ptr<Free> pool = free_;
  auto owner = std::shared_ptr<const void>(bytes.data(), [pool, block](const void*) {
    const std::shared_ptr<Free> free = pool.lock();
    if (!free) return;
    const std::lock_guard lock(free->mutex);
    try {
      free->blocks.emplace(block.size_bytes(), block);
    } catch (const std::bad_alloc&) {
      return;  // the block is released
    }
    free->num_bytes += block.size_bytes();
  });
  return {bytes, std::move(owner)};
}

TensorDict StagingPool::copy(const TensorDict& tree, int num_threads) {
  const std::vector<NamedLeaf> leaves = tensors_of(tree);
  const std::vector<std::size_t> first = alias_targets(leaves, &NamedLeaf::leaf);
  std::uint64_t needed = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (first[i] == i) needed += leaves[i].leaf.nbytes();
  }
  // Check the available memory first: by default, Linux overcommits memory, so that allocations
  // succeed, and kills a process when memory runs out.
  const std::uint64_t kept = kept_bytes();
  if (needed > kept && needed - kept > os::available_memory_bytes()) throw std::bad_alloc();
  std::vector<Buffer> copies(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (first[i] == i) copies[i] = take(static_cast<std::size_t>(leaves[i].leaf.nbytes()));
  }
  free_->drop_all();  // this state does not need the remaining blocks
  os::parallel_for(leaves.size(), os::num_threads_for(num_threads), [&](std::size_t i) {
    if (first[i] == i) leaves[i].leaf.read(0, copies[i].mutable_bytes());
  });
  std::size_t next = 0;
  // An alias keeps its dtype and shape, which may differ from those of the first tensor over the
  // same bytes.
  return map_leaves(tree,
                    [&](const Leaf& leaf) { return with_bytes(leaf, copies[first[next++]]); });
}

}  // namespace tenfold::checkpoint
