#include "stores/row_order.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace tenfold {
namespace {

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

class Taken final : public RowOrder {
 public:
  Taken(RowOrderPtr base, Tensor positions)
      : base_(std::move(base)), positions_(std::move(positions)) {}
  std::int64_t size() const noexcept override { return positions_.numel(); }
  void map(std::span<std::int64_t> positions) const override {
    const auto* taken = positions_.data<std::int64_t>();
    for (std::int64_t& position : positions) position = taken[position];
    base_->map(positions);
  }

 private:
  RowOrderPtr base_;
  Tensor positions_;
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

class Joined final : public RowOrder {
 public:
  explicit Joined(std::vector<RowOrderPtr> parts) : parts_(std::move(parts)) {
    for (const RowOrderPtr& part : parts_) {
      begins_.push_back(size_);
      size_ += part->size();
    }
  }
  std::int64_t size() const noexcept override { return size_; }
  void map(std::span<std::int64_t> positions) const override {
    // Neighbours of one part are mapped together.
    for (std::size_t i = 0; i < positions.size();) {
      const std::size_t part = part_of(positions[i]);
      const std::int64_t begin = begins_[part];
      const std::int64_t end = begin + parts_[part]->size();
      std::size_t last = i;
      while (last < positions.size() && positions[last] >= begin && positions[last] < end) {
        positions[last++] -= begin;
      }
      parts_[part]->map(positions.subspan(i, last - i));
      i = last;
    }
  }

 private:
  std::size_t part_of(std::int64_t position) const {
    // The last that begins at or before it: an empty part begins where the next one does.
    const auto after = std::upper_bound(begins_.begin(), begins_.end(), position);
    return static_cast<std::size_t>(after - begins_.begin()) - 1;
  }

  std::vector<RowOrderPtr> parts_;
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
    for (std::int64_t& position : positions) {
      const auto k = static_cast<std::size_t>(position % period);
      const std::uint32_t part = pattern_[k];
      std::int64_t inside = position / period * counts_[part] + before_[k];
      parts_[part]->map({&inside, 1});
      position = inside;
    }
  }

 private:
  std::int64_t size_until_exhausted() const {
    const auto period = static_cast<std::int64_t>(pattern_.size());
    std::int64_t rounds = std::numeric_limits<std::int64_t>::max() / period;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (counts_[i] > 0) rounds = std::min(rounds, parts_[i]->size() / counts_[i]);
    }
    for (std::size_t k = 0; k < pattern_.size(); ++k) {
      const std::uint32_t part = pattern_[k];
      if (rounds * counts_[part] + before_[k] >= parts_[part]->size()) {
        return rounds * period + static_cast<std::int64_t>(k);
      }
    }
    return rounds * period;
  }

  std::vector<RowOrderPtr> parts_;
  std::vector<std::uint32_t> pattern_;
  std::vector<std::int64_t> counts_;  ///< of each part, in one period
  std::vector<std::int64_t> before_;  ///< of pattern_[k]'s part, earlier in the period
  std::int64_t size_ = 0;
};

}  // namespace

RowOrderPtr row_range(std::int64_t begin, std::int64_t size) {
  return std::make_shared<Range>(begin, size);
}

RowOrderPtr sub_order(const RowOrderPtr& base, std::int64_t begin, std::int64_t size) {
  if (const auto first = base->contiguous_from()) return row_range(*first + begin, size);
  return std::make_shared<Shifted>(base, begin, size);
}

RowOrderPtr taken_order(RowOrderPtr base, Tensor positions) {
  return std::make_shared<Taken>(std::move(base), std::move(positions));
}

RowOrderPtr permuted_order(RowOrderPtr base, const Permutation& permutation, std::int64_t begin,
                           std::int64_t size) {
  return std::make_shared<Permuted>(std::move(base), permutation, begin, size);
}

RowOrderPtr joined_order(std::vector<RowOrderPtr> parts) {
  return std::make_shared<Joined>(std::move(parts));
}

RowOrderPtr mixed_order(std::vector<RowOrderPtr> parts, std::vector<std::uint32_t> pattern) {
  return std::make_shared<Mixed>(std::move(parts), std::move(pattern));
}

}  // namespace tenfold
