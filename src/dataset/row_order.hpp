#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <tenfold/permutation.hpp>

namespace tenfold {

/// Which rows of the tables a view shows, and in which order: position -> row.
///
/// Thread safety: const objects, used from many threads.
class RowOrder {
 public:
  virtual ~RowOrder() = default;
  virtual std::int64_t size() const noexcept = 0;
  /// Replaces positions, which lie in [0, size()), by rows.
  virtual void map(std::span<std::int64_t> positions) const = 0;
  /// The first row, if the rows follow each other.
  virtual std::optional<std::int64_t> contiguous_from() const { return std::nullopt; }
};

using RowOrderPtr = std::shared_ptr<const RowOrder>;

/// The rows [begin, begin + size).
RowOrderPtr row_range(std::int64_t begin, std::int64_t size);

/// The positions [begin, begin + size) of `base`.
RowOrderPtr sub_order(const RowOrderPtr& base, std::int64_t begin, std::int64_t size);

/// Those positions of `base`, which are inside already; they are copied.
RowOrderPtr taken_order(RowOrderPtr base, std::span<const std::int64_t> positions);

/// The positions [begin, begin + size) of `permutation`, in its order, of `base`.
RowOrderPtr permuted_order(RowOrderPtr base, const Permutation& permutation, std::int64_t begin,
                           std::int64_t size);

/// One after the other.
RowOrderPtr joined_order(std::vector<RowOrderPtr> parts);

/// Rows of several parts in turn: pattern[k % pattern.size()] says from which part the k-th comes,
/// each part in its own order; ends with the first part that is exhausted.
RowOrderPtr mixed_order(std::vector<RowOrderPtr> parts, std::vector<std::uint32_t> pattern);

}  // namespace tenfold
