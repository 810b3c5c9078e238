#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <tenfold/buffer.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold::checkpoint {

/// A pool of memory for copies of a training state. A copy reuses blocks of earlier copies that
/// have the required sizes, because page faults in new memory take longer than the copy.
/// Thread-safe; buffers may outlive the pool.
class StagingPool {
 public:
  StagingPool();

  /// Returns a tree with copies of all tensors. Tensors that share storage share one copy. Throws
  /// std::bad_alloc, before it copies anything, if the tensors need more than kept_bytes() plus the
  /// available memory.
  TensorDict copy(const TensorDict& tree, int num_threads);

  /// The size of the memory that is kept for the next copy.
  std::uint64_t kept_bytes() const;

 private:
  struct Free;
  Buffer take(std::size_t size_bytes);

  std::shared_ptr<Free> free_;
};

}  // namespace tenfold::checkpoint
