#pragma once

#include <functional>
#include <memory>

#include "formats/shared/progress.hpp"
#include "ingest/text/record_blocks.hpp"

namespace tenfold {

/// What one thread does with blocks.
class BlockWork {
 public:
  virtual ~BlockWork() = default;
  /// A block begins, whose memory stays until its last deliver().
  virtual void begin(const Block& block) = 0;
  /// Works on some of the block, while other threads work on others. True if there is more of it.
  virtual bool work() = 0;
  /// Hands over what work() made: one thread at a time, in the order of the blocks. False ends the
  /// pipeline.
  virtual bool deliver() = 0;
};

/// Reads blocks in order, works on them on several threads, and hands over what they made in
/// order. An exception of any of them ends it, and is thrown on, unless an earlier block ends it
/// without one. The calling thread polls `progress`.
void run_pipeline(BlockReader& reader, int num_threads, detail::formats::Progress& progress,
                  const std::function<std::unique_ptr<BlockWork>()>& make_work);

}  // namespace tenfold
