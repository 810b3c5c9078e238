#pragma once

#include <functional>
#include <memory>

#include "formats/shared/progress.hpp"
#include "ingest/text/record_blocks.hpp"

namespace tenfold {

/// The work of one thread on blocks.
class BlockWork {
 public:
  virtual ~BlockWork() = default;
  /// Starts a block. The memory of `block` is valid until the last deliver() of the block.
  virtual void begin(const Block& block) = 0;
  /// Processes a part of the block, concurrently with other threads. Returns true if, after
  /// deliver(), work() must be called again for the rest of the block.
  virtual bool work() = 0;
  /// Delivers the result of the last work(). Calls are in the order of the blocks, in one thread at
  /// a time. Returning false ends the pipeline.
  virtual bool deliver() = 0;
};

/// Reads blocks in order, processes them on several threads, and delivers the results in order. An
/// exception from a block ends the pipeline after all earlier blocks are delivered, and is
/// rethrown. It is ignored if an earlier block has ended the pipeline before. The calling thread
/// polls `progress`; an exception of the poll ends the pipeline at once.
void run_pipeline(BlockReader& reader, int num_threads, detail::formats::Progress& progress,
                  const std::function<std::unique_ptr<BlockWork>()>& make_work);

}  // namespace tenfold
