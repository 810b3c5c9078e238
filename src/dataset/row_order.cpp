#include "dataset/row_order.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/prefetch.hpp"
#include "dataset/part_lookup.hpp"
#include "os/memory/allocation.hpp"

namespace tenfold {
namespace {

constexpr std::size_t kLargeBytes = std::size_t{1} << 20U;
/// The number of positions that are prefetched at a time. Their cache lines fit in L2 together with
/// other data.
constexpr std::size_t kPrefetchedRows = 512;

class Range final : public RowOrder {
 public:
  Range(std::int64_t begin, std::int64_t size) : begin_(begin), size_(size) {}
  std::int64_t size() const noexcept override { return size_; }
  void map(std::span<std::int64_t> positions) const override {
    if (begin_ == 0) return;
    for (std::int64_t& position : positions) position += begin_;
  }
  std::optional<std::int64_t> contiguous_from() const override { return begin_; }

 private:
  std::int64_t begin_;
  std::int64_t size_;
};

class Shifted final : public RowOrder {
 public:
  Shifted(RowOrderPtr base, std::int64_t begin, std::int64_t size)
      : base_(std::move(base)), begin_(begin), size_(size) {}
  std::int64_t size() const noexcept override { return size_; }
  void map(std::span<std::int64_t> positions) const override {
    for (std::int64_t& position : positions) position += begin_;
    base_->map(positions);
  }

 private:
  RowOrderPtr base_;
  std::int64_t begin_;
  std::int64_t size_;
};

/// The rows of `base` at copied positions. The copy is read in random order, so a copy of 1 MiB or
/// more has its own memory mapping, with huge pages (where available) from 2 MiB on. `Index`: the
/// type of the copied positions, int32 if it can represent all positions of `base`, else int64.
template <class Index>
class Taken final : public RowOrder {
 public:
  Taken(RowOrderPtr base, std::span<const std::int64_t> positions)
      : base_(std::move(base)), size_(static_cast<std::int64_t>(positions.size())) {
    if (positions.empty()) return;
    const std::size_t bytes = positions.size() * sizeof(Index);
    // Small views use the heap, because the system limits the number of mappings of a process.
    memory_ = bytes < kLargeBytes ? std::shared_ptr<std::byte>(new std::byte[bytes],
                                                               std::default_delete<std::byte[]>())
                                  : os::allocate_pages(bytes);
    auto* into = reinterpret_cast<Index*>(memory_.get());
    for (const std::int64_t position : positions) *into++ = static_cast<Index>(position);
  }
  std::int64_t size() const noexcept override { return size_; }
  void map(std::span<std::int64_t> positions) const override {
    const auto* taken = reinterpret_cast<const Index*>(memory_.get());
    // Prefetch each block of positions first, to L2, which allows more outstanding requests than
    // L1.
    for (std::size_t first = 0; first < positions.size(); first += kPrefetchedRows) {
      const auto some =
          positions.subspan(first, std::min(kPrefetchedRows, positions.size() - first));
      for (const std::int64_t position : some) base::prefetch(taken + position);
      for (std::int64_t& position : some) position = std::int64_t{taken[position]};
    }
    base_->map(positions);
  }

 private:
  RowOrderPtr base_;
  std::int64_t size_;
  std::shared_ptr<std::byte> memory_;
};

class Permuted final : public RowOrder {
 public:
  Permuted(RowOrderPtr base, const Permutation& permutation, std::int64_t begin, std::int64_t size)
      : base_(std::move(base)), permutation_(permutation), begin_(begin), size_(size) {}
  std::int64_t size() const noexcept override { return size_; }
  void map(std::span<std::int64_t> positions) const override {
    for (std::int64_t& position : positions) position += begin_;
    permutation_.map(positions);
    base_->map(positions);
  }

 private:
  RowOrderPtr base_;
  Permutation permutation_;
  std::int64_t begin_;
  std::int64_t size_;
};

/// Several orders, joined or mixed into one.
class Parts {
 public:
  explicit Parts(std::vector<RowOrderPtr> orders) : orders_(std::move(orders)) {
    for (const RowOrderPtr& order : orders_) {
      const auto first = order->contiguous_from();
      all_contiguous_ = all_contiguous_ && first.has_value();
      first_rows_.push_back(first.value_or(0));
    }
  }

  const RowOrder& operator[](std::size_t part) const { return *orders_[part]; }
  std::size_t size() const noexcept { return orders_.size(); }

  /// Replaces each positions[i], which is a position in the order of part parts[i], by its row.
  void map(std::span<const std::uint32_t> parts, std::span<std::int64_t> positions) const {
    if (all_contiguous_) {
      for (std::size_t i = 0; i < positions.size(); ++i) positions[i] += first_rows_[parts[i]];
      return;
    }
    // Group positions by part: one map() call for many positions takes less time than a call for
    // each position.
    std::vector<std::vector<std::size_t>> places(orders_.size());
    for (std::size_t i = 0; i < positions.size(); ++i) places[parts[i]].push_back(i);
    std::vector<std::int64_t> inside;
    for (std::size_t part = 0; part < orders_.size(); ++part) {
      inside.clear();
      for (const std::size_t i : places[part]) inside.push_back(positions[i]);
      if (!inside.empty()) orders_[part]->map(inside);
      for (std::size_t k = 0; k < inside.size(); ++k) positions[places[part][k]] = inside[k];
    }
  }

 private:
  std::vector<RowOrderPtr> orders_;
  /// First row of each part; 0 unless the part is contiguous.
  std::vector<std::int64_t> first_rows_;
  bool all_contiguous_ = true;
};

class Joined final : public RowOrder {
 public:
  explicit Joined(std::vector<RowOrderPtr> parts) : parts_(std::move(parts)) {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      begins_.push_back(size_);
      size_ += parts_[i].size();
    }
  }
  std::int64_t size() const noexcept override { return size_; }
  void map(std::span<std::int64_t> positions) const override {
    // part_of_each() returns the last part that begins at or before the position. This is never an
    // empty part, because the next part begins at the same position.
    const std::vector<std::uint32_t> parts = part_of_each(begins_, positions);
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] -= begins_[parts[i]];
    parts_.map(parts, positions);
  }

 private:
  Parts parts_;
  std::vector<std::int64_t> begins_;
  std::int64_t size_ = 0;
};

class Mixed final : public RowOrder {
 public:
  Mixed(std::vector<RowOrderPtr> parts, std::vector<std::uint32_t> pattern)
      : parts_(std::move(parts)), pattern_(std::move(pattern)), counts_(parts_.size()) {
    before_.reserve(pattern_.size());
    for (const std::uint32_t part : pattern_) before_.push_back(counts_[part]++);
    size_ = size_until_exhausted();
  }
  std::int64_t size() const noexcept override { return size_; }
  void map(std::span<std::int64_t> positions) const override {
    const auto period = static_cast<std::int64_t>(pattern_.size());
    std::vector<std::uint32_t> parts(positions.size());
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const std::int64_t round = positions[i] / period;
      const auto k = static_cast<std::size_t>(positions[i] - round * period);
      parts[i] = pattern_[k];
      positions[i] = round * counts_[parts[i]] + before_[k];
    }
    parts_.map(parts, positions);
  }

 private:
  std::int64_t size_until_exhausted() const {
    const auto period = static_cast<std::int64_t>(pattern_.size());
    std::int64_t rounds = std::numeric_limits<std::int64_t>::max() / period;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (counts_[i] > 0) rounds = std::min(rounds, parts_[i].size() / counts_[i]);
    }
    for (std::size_t k = 0; k < pattern_.size(); ++k) {
      const std::uint32_t part = pattern_[k];
      if (rounds * counts_[part] + before_[k] >= parts_[part].size()) {
        return rounds * period + static_cast<std::int64_t>(k);
      }
    }
    return rounds * period;
  }

  Parts parts_;
  std::vector<std::uint32_t> pattern_;
  std::vector<std::int64_t> counts_;  ///< for each part, its number of rows in one period
  std::vector<std::int64_t> before_;  ///< for each row of the period, the number of
                                      ///< earlier rows of its part in the period
  std::int64_t size_ = 0;
};

/// A single range if all rows of all parts are consecutive, as for whole data sets; null otherwise.
RowOrderPtr joined_range(const std::vector<RowOrderPtr>& parts) {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  for (const RowOrderPtr& part : parts) {
    if (part->size() == 0) continue;
    const auto first = part->contiguous_from();
    if (!first || (size > 0 && *first != begin + size)) return nullptr;
    if (size == 0) begin = *first;
    size += part->size();
  }
  return std::make_shared<Range>(begin, size);
}

}  // namespace

RowOrderPtr row_range(std::int64_t begin, std::int64_t size) {
  return std::make_shared<Range>(begin, size);
}

RowOrderPtr sub_order(const RowOrderPtr& base, std::int64_t begin, std::int64_t size) {
  if (const auto first = base->contiguous_from()) return row_range(*first + begin, size);
  return std::make_shared<Shifted>(base, begin, size);
}

RowOrderPtr selected_order(RowOrderPtr base, std::span<const std::int64_t> positions) {
  if (base->size() <= std::numeric_limits<std::int32_t>::max()) {
    return std::make_shared<Taken<std::int32_t>>(std::move(base), positions);
  }
  return std::make_shared<Taken<std::int64_t>>(std::move(base), positions);
}

RowOrderPtr permuted_order(RowOrderPtr base, const Permutation& permutation, std::int64_t begin,
                           std::int64_t size) {
  return std::make_shared<Permuted>(std::move(base), permutation, begin, size);
}

RowOrderPtr joined_order(std::vector<RowOrderPtr> parts) {
  if (auto range = joined_range(parts)) return range;
  return std::make_shared<Joined>(std::move(parts));
}

RowOrderPtr mixed_order(std::vector<RowOrderPtr> parts, std::vector<std::uint32_t> pattern) {
  return std::make_shared<Mixed>(std::move(parts), std::move(pattern));
}

}  // namespace tenfold
