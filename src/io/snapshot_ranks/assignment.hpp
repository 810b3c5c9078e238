#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/snapshot/plan.hpp"
#include "io/snapshot_ranks/outline.hpp"

// Assigns entries and boxes that several ranks have (replicated entries, boxes of sharded tensors
// that a mesh replicates) to the ranks that write them.

namespace tenfold::detail::snapshot_ranks {

struct Shared {
  formats::snapshot::Assignment assignment;
  std::uint64_t num_bytes = 0;  ///< of all files, about
};

/// Shares the work to the rank that has least so far. Throws Error(invalid_argument) if entries
/// differ between ranks, or the boxes of a tensor overlap or leave elements out.
Shared share_work(const std::string& where, const std::vector<Outline>& outlines);

}  // namespace tenfold::detail::snapshot_ranks
