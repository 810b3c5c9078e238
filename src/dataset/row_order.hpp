#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <tenfold/permutation.hpp>

namespace tenfold {

/// The rows of a view and their order: a map from position to row.
///
/// Thread safety: objects are const, and may be used from any thread.
class RowOrder {
 public:
  virtual ~RowOrder() = default;
  virtual std::int64_t size() const noexcept = 0;
  /// Replaces each position, which must be in [0, size()), by its row.
  virtual void map(std::span<std::int64_t> positions) const = 0;
  /// The first row, if the order is known to be a range of consecutive rows; else nullopt.
  virtual std::optional<std::int64_t> contiguous_from() const { return std::nullopt; }
};

using RowOrderPtr = std::shared_ptr<const RowOrder>;

/// The rows [begin, begin + size).
RowOrderPtr row_range(std::int64_t begin, std::int64_t size);

/// The rows of `base` at the positions [begin, begin + size).
RowOrderPtr sub_order(const RowOrderPtr& base, std::int64_t begin, std::int64_t size);

/// The rows of `base` at `positions`, which must be in range. Copies the positions.
RowOrderPtr selected_order(RowOrderPtr base, std::span<const std::int64_t> positions);

/// The rows of `base` in permuted order, restricted to the positions [begin, begin + size) of that
/// order.
RowOrderPtr permuted_order(RowOrderPtr base, const Permutation& permutation, std::int64_t begin,
                           std::int64_t size);

/// Concatenates orders.
RowOrderPtr joined_order(std::vector<RowOrderPtr> parts);

/// Interleaves orders: row k is the next row of part pattern[k % pattern.size()]. Ends before the
/// first row whose part has no more rows.
RowOrderPtr mixed_order(std::vector<RowOrderPtr> parts, std::vector<std::uint32_t> pattern);

}  // namespace tenfold
