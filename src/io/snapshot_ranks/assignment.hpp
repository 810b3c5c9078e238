#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/snapshot/plan.hpp"
#include "io/snapshot_ranks/outline.hpp"

// Assigns entries and boxes that several ranks have (replicated entries, boxes of sharded tensors
// that a mesh replicates) to the ranks that write them.

namespace tenfold::detail::snapshot_ranks {

/// The result of share_work().
struct Shared {
  formats::snapshot::Assignment assignment;
  std::uint64_t num_bytes = 0;  ///< approximate size of all files
};

/// Assigns each shared entry to the rank with the fewest bytes so far, and each shared box to such
/// a rank among those that have it. Throws Error(invalid_argument) if replicated entries or shards
/// of one path differ between ranks, or if the boxes of a tensor overlap or do not cover it.
Shared share_work(const std::string& where, const std::vector<Outline>& outlines);

}  // namespace tenfold::detail::snapshot_ranks
