#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/snapshot/plan.hpp"

// The description of a rank's part of a snapshot. The ranks send it to the coordinator before
// anything is written.

namespace tenfold::detail::snapshot_ranks {

/// An entry that is marked as replicated.
struct Candidate {
  std::string path;
  std::string description;  ///< dtype and shape, value or digest; must be the same on all ranks
  std::string group;        ///< equal for entries that share bytes of one file
  std::vector<std::uint64_t> sizes;  ///< bytes of each chunk; one number if there are no chunks
};

/// A part of a sharded tensor.
struct Box {
  Shape offsets;
  Shape sizes;
  auto operator<=>(const Box&) const = default;
};

/// A sharded tensor, as one rank has it.
struct ShardedCandidate {
  std::string path;
  std::string description;
  DType dtype = DType::float32;
  Shape shape;
  std::vector<Box> boxes;  ///< the rank's boxes that have elements

  std::uint64_t bytes_of(const Box& box) const { return nbytes_of(dtype, box.sizes); }
};

/// The replicated and sharded entries of one rank. The rank sends them to the coordinator, which
/// assigns the entries and boxes that several ranks have.
struct Outline {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::uint64_t own_bytes = 0;  ///< bytes of the entries that are neither replicated nor sharded
  std::vector<Candidate> replicated;
  std::vector<ShardedCandidate> sharded;

  std::string to_text() const;
  /// Parses the result of to_text(). Throws Error(invalid_argument) for a string that is not an
  /// outline.
  static Outline parse(std::string_view text);
};

/// Returns the outline of `rank`. `plan` must include the entries that other ranks may write.
Outline outline_of(const formats::snapshot::Plan& plan, const TensorDict& tree,
                   const formats::snapshot::PlannedRank& rank);

}  // namespace tenfold::detail::snapshot_ranks
