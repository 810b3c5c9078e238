#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/snapshot/plan.hpp"
#include "io/snapshot_ranks/outline.hpp"

// Replicated entries are on several ranks. So are boxes (parts) of sharded tensors that are
// replicated along a dimension of the device mesh. This code chooses the rank that writes each such
// entry or box.

namespace tenfold::detail::snapshot_ranks {

/// The result of share_work().
struct Shared {
  formats::snapshot::Assignment assignment;
  std::uint64_t num_bytes = 0;  ///< approximate size of all files
};

/// Assigns each chunk of an entry that is replicated on all ranks to the rank with the fewest bytes
/// so far. Assigns each box that several ranks have to the one of these ranks with the fewest bytes
/// so far. Chunks that share bytes go to the same rank. Chunks without bytes go to rank 0.
///
/// Throws Error(invalid_argument) if the replicated entries at one path have different values of
/// Candidate::description or different sizes of chunks. Also throws it if the shards at one path do
/// not belong to one tensor, or if the boxes of a tensor overlap or do not cover it.
Shared share_work(const std::string& where, const std::vector<Outline>& outlines);

}  // namespace tenfold::detail::snapshot_ranks
