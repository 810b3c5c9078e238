#include "dataset/loader/buffer_pool.hpp"

#include <algorithm>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/checked.hpp"
#include "os/memory/allocation.hpp"

namespace tenfold {
namespace {

/// Blocks up to this size come from the heap. If a program keeps its batches, no block returns to
/// the pool, and mapping new pages for each small block would take longer than filling it.
constexpr std::size_t kMaxHeapBytes = std::size_t{64} << 10U;
/// The maximum numbers of free blocks; if there are more, the oldest is released. With default
/// options and few ragged columns, a loader uses fewer blocks at a time.
constexpr std::size_t kMaxFreeLarge = 16;
constexpr std::size_t kMaxFreeSmall = 64;
constexpr std::size_t kPageBytes = 4096;
/// The maximum number of supplied blocks that no batch uses yet; if there are more, the oldest is
/// dropped. Concurrent batches usually need fewer blocks, so the dropped block is probably not
/// needed.
constexpr std::size_t kMaxSupplied = 64;
/// The maximum number of recorded sizes, in case the caller never calls requested().
constexpr std::size_t kMaxRequested = 1024;
constexpr std::align_val_t kHeapAlignment{64};

struct Block {
  std::shared_ptr<std::byte> memory;
  std::size_t size_bytes = 0;
};

std::shared_ptr<std::byte> allocate_on_heap(std::size_t size_bytes) {
  return {static_cast<std::byte*>(::operator new(size_bytes, kHeapAlignment)),
          [](std::byte* memory) { ::operator delete(memory, kHeapAlignment); }};
}

}  // namespace

void SuppliedMemory::supply(Buffer block) {
  Buffer dropped;  // destroyed after the mutex is unlocked, because its owner may run any code
  const std::lock_guard lock(mutex_);
  if (blocks_.size() == kMaxSupplied) {
    dropped = std::move(blocks_.front());
    blocks_.erase(blocks_.begin());
  }
  blocks_.push_back(std::move(block));
}

std::optional<Buffer> SuppliedMemory::take(std::size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  if (requested_.size() < kMaxRequested) requested_.push_back(size_bytes);
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

struct BufferPool::Blocks {
  std::mutex mutex;
  /// Separate lists, so that many small blocks do not evict a large block, whose page faults are
  /// expensive.
  std::vector<Block> free_small, free_large;

  /// Reserves both lists, so that give_back(), which destructors call, allocates nothing.
  Blocks() {
    free_small.reserve(kMaxFreeSmall);
    free_large.reserve(kMaxFreeLarge);
  }

  static bool is_small(std::size_t size_bytes) { return size_bytes <= kMaxHeapBytes; }

  /// Locks the mutex, or gives up after a short time, because the mutex stays locked forever in a
  /// child that was forked while another thread held it. The caller then allocates without the
  /// pool.
  std::unique_lock<std::mutex> lock_or_spin() {
    std::unique_lock lock(mutex, std::try_to_lock);
    for (int i = 0; i < 1000 && !lock.owns_lock(); ++i) {
      std::this_thread::yield();
      static_cast<void>(lock.try_lock());
    }
    return lock;
  }

  Block take(std::size_t size_bytes) {
    if (const auto lock = lock_or_spin()) {
      std::vector<Block>& free = is_small(size_bytes) ? free_small : free_large;
      // Prefer the block that was returned last, which is most likely in the CPU cache. Leave a
      // block of more than twice the size for larger requests.
      const auto found = std::find_if(free.rbegin(), free.rend(), [&](const Block& block) {
        return block.size_bytes >= size_bytes && block.size_bytes / 2 <= size_bytes;
      });
      if (found != free.rend()) {
        Block taken = std::move(*found);
        free.erase(std::next(found).base());
        return taken;
      }
    }
    return {is_small(size_bytes) ? allocate_on_heap(size_bytes) : os::allocate_pages(size_bytes),
            size_bytes};
  }

  void give_back(Block block) {
    Block dropped;
    const auto lock = lock_or_spin();
    if (!lock) return;
    const bool small = is_small(block.size_bytes);
    std::vector<Block>& free = small ? free_small : free_large;
    if (free.size() == (small ? kMaxFreeSmall : kMaxFreeLarge)) {
      dropped = std::move(free.front());
      free.erase(free.begin());
    }
    free.push_back(std::move(block));
  }
};

BufferPool::BufferPool(std::shared_ptr<SuppliedMemory> supplied)
    : blocks_(std::make_shared<Blocks>()), supplied_(std::move(supplied)) {}

Buffer BufferPool::take(std::size_t size_bytes) const {
  if (size_bytes == 0) return {};
  if (supplied_) {
    if (auto block = supplied_->take(size_bytes)) return *block;
  }
  const auto rounded = static_cast<std::size_t>(base::align_up(size_bytes, kPageBytes));
  Block block = blocks_->take(rounded);
  std::byte* begin = block.memory.get();
  std::shared_ptr<const void> owner(begin, [blocks = blocks_, block](const void*) mutable {
    blocks->give_back(std::move(block));
  });
  return {std::span(begin, size_bytes), std::move(owner)};
}

std::size_t BufferPool::free_bytes() const {
  const auto lock = blocks_->lock_or_spin();
  std::size_t total = 0;
  for (const Block& block : blocks_->free_small) total += block.size_bytes;
  for (const Block& block : blocks_->free_large) total += block.size_bytes;
  return total;
}

}  // namespace tenfold
