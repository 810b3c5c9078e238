#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <tenfold/buffer.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold::checkpoint {

/// A leaf over a copy of the bytes of `leaf`, with its marks.
Leaf leaf_with(const Leaf& leaf, Tensor copy);

/// Memory for copies of a training's state, used again for each save: the pages of fresh memory
/// take longer to get than the bytes to copy. Thread-safe; buffers may outlive the pool.
class StagingPool {
 public:
  StagingPool();

  /// A tree over copies of all tensors. Tensors that share their bytes share the copy. Throws
  /// std::bad_alloc; nothing is copied if the system says that there is not enough memory.
  TensorDict copy(const TensorDict& tree, int num_threads);

  /// Bytes that are kept for the next copy.
  std::uint64_t kept_bytes() const;

 private:
  struct Free;
  Buffer take(std::size_t size_bytes);

  std::shared_ptr<Free> free_;
};

}  // namespace tenfold::checkpoint
