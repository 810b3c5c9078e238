#include "formats/safetensors/stack.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fail.hpp"
#include "core/tree/leaf_source.hpp"

namespace tenfold::detail::formats::safetensors {
namespace {

/// Runs of contiguous bytes that are shorter than this are read together in larger reads, and then
/// copied.
constexpr std::uint64_t kDirectReadBytes = std::uint64_t{32} << 10;
constexpr std::uint64_t kWindowBytes = std::uint64_t{1} << 20;
/// Runs whose starts are further apart than this are read one by one, because a window would
/// contain fewer than 16 of them.
constexpr std::uint64_t kMaxWindowStride = kWindowBytes / 16;

std::uint64_t bytes_from(const Leaf& leaf, std::size_t first_dim) {
  std::uint64_t bytes = itemsize(leaf.dtype());
  for (std::size_t i = first_dim; i < leaf.shape().size(); ++i) {
    bytes *= static_cast<std::uint64_t>(leaf.shape()[i]);
  }
  return bytes;
}

class SliceSource final : public LeafSource {
 public:
  SliceSource(Leaf dense, const FixedDims& fixed) : dense_(std::move(dense)) {
    const Shape& shape = dense_.shape();
    const auto last_fixed = static_cast<std::size_t>(fixed.back().first);
    run_bytes_ = bytes_from(dense_, last_fixed + 1);
    std::uint64_t stride = run_bytes_;
    auto next = fixed.rbegin();
    for (std::size_t dim = last_fixed + 1; dim-- > 0;) {
      const auto length = static_cast<std::uint64_t>(shape[dim]);
      if (next != fixed.rend() && static_cast<std::size_t>(next->first) == dim) {
        base_offset_ += stride * static_cast<std::uint64_t>(next->second);
        ++next;
      } else if (length != 1) {
        outer_.push_back({length, stride});  // innermost first
      }
      stride *= length;
    }
    by_run_ = run_bytes_ >= kDirectReadBytes || outer_.empty() ||
              outer_.front().stride_bytes > kMaxWindowStride;
  }

  Buffer map(const Leaf& leaf) override {
    const std::uint64_t size = leaf.nbytes();
    if (size == 0) return Buffer();
    if (size == run_bytes_) {  // a single run: a slice of the stored tensor
      const Tensor whole = dense_.tensor();
      return whole.buffer().slice(static_cast<std::size_t>(whole.offset_bytes() + base_offset_),
                                  static_cast<std::size_t>(size));
    }
    const std::lock_guard lock(mutex_);
    if (!gathered_) {
      Buffer buffer = Buffer::allocate(static_cast<std::size_t>(size));
      read(leaf, 0, buffer.mutable_bytes());
      gathered_ = buffer;
    }
    return *gathered_;
  }

  void read(const Leaf&, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    if (into.empty()) return;
    const std::uint64_t last_byte = offset_bytes + into.size() - 1;
    const std::uint64_t end = run_offset(last_byte / run_bytes_) + last_byte % run_bytes_ + 1;
    std::vector<std::byte> window;
    std::uint64_t window_begin = 0;
    while (!into.empty()) {
      const std::uint64_t within = offset_bytes % run_bytes_;
      const std::uint64_t from = run_offset(offset_bytes / run_bytes_) + within;
      const std::size_t count =
          static_cast<std::size_t>(std::min<std::uint64_t>(run_bytes_ - within, into.size()));
      if (by_run_) {
        dense_.read(from, into.first(count));
      } else {
        if (from < window_begin || from + count > window_begin + window.size()) {
          window_begin = from;
          window.resize(static_cast<std::size_t>(std::min(kWindowBytes, end - from)));
          dense_.read(window_begin, window);
        }
        std::memcpy(into.data(), window.data() + (from - window_begin), count);
      }
      into = into.subspan(count);
      offset_bytes += count;
    }
  }

  base::Where where(const Leaf&) const override { return source_of(dense_)->where(dense_); }
  std::vector<Leaf> parts(const Leaf&) const override { return {dense_}; }

 private:
  struct Outer {
    std::uint64_t length;
    std::uint64_t stride_bytes;
  };

  std::uint64_t run_offset(std::uint64_t run) const {
    std::uint64_t offset = base_offset_;
    for (const Outer& outer : outer_) {
      offset += run % outer.length * outer.stride_bytes;
      run /= outer.length;
    }
    return offset;
  }

  Leaf dense_;
  std::uint64_t run_bytes_ = 0;
  std::uint64_t base_offset_ = 0;
  std::vector<Outer> outer_;
  /// Read each run of contiguous bytes by itself, instead of many runs in reads of kWindowBytes.
  bool by_run_ = false;
  std::mutex mutex_;
  std::optional<Buffer> gathered_;
};

class StackSource final : public LeafSource {
 public:
  StackSource(std::vector<Leaf> parts, std::size_t dim)
      : parts_(std::move(parts)), run_bytes_(bytes_from(parts_.front(), dim)) {}

  Buffer map(const Leaf& leaf) override {
    Buffer buffer = Buffer::allocate(static_cast<std::size_t>(leaf.nbytes()));
    read(leaf, 0, buffer.mutable_bytes());
    return buffer;
  }

  void read(const Leaf&, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    if (into.empty()) return;
    const std::uint64_t end = offset_bytes + into.size();
    const std::uint64_t row_bytes = run_bytes_ * parts_.size();
    if (run_bytes_ >= kDirectReadBytes) {
      for (std::uint64_t at = offset_bytes; at < end;) {
        const std::uint64_t count = std::min(run_bytes_ - at % run_bytes_, end - at);
        const auto part = static_cast<std::size_t>(at / run_bytes_ % parts_.size());
        parts_[part].read(at / row_bytes * run_bytes_ + at % run_bytes_,
                          into.subspan(static_cast<std::size_t>(at - offset_bytes),
                                       static_cast<std::size_t>(count)));
        at += count;
      }
      return;
    }
    // Short runs: read many of one part at once, then copy them to their destinations. A row of the
    // stacked tensor consists of one run of each part, in the order of the parts.
    const std::uint64_t rows_per_batch = std::max<std::uint64_t>(1, kWindowBytes / run_bytes_);
    std::vector<std::byte> runs;
    for (std::uint64_t row = offset_bytes / row_bytes; row * row_bytes < end;
         row += rows_per_batch) {
      const std::uint64_t last = std::min(row + rows_per_batch, (end + row_bytes - 1) / row_bytes);
      for (std::size_t part = 0; part < parts_.size(); ++part) {
        // Skip the first row if its run of this part is before the range to read, and the last row
        // if its run of this part is after it. With many parts, a row can be longer than the range:
        // then most parts have no run in the range.
        const std::uint64_t in_row = part * run_bytes_;
        const std::uint64_t first =
            row * row_bytes + in_row + run_bytes_ <= offset_bytes ? row + 1 : row;
        const std::uint64_t past = (last - 1) * row_bytes + in_row >= end ? last - 1 : last;
        if (first >= past) continue;
        runs.resize(static_cast<std::size_t>((past - first) * run_bytes_));
        parts_[part].read(first * run_bytes_, runs);
        for (std::uint64_t r = first; r < past; ++r) {
          copy_run(runs.data() + (r - first) * run_bytes_, r * row_bytes + in_row, offset_bytes,
                   into);
        }
      }
    }
  }

  base::Where where(const Leaf&) const override { return {"", "a stack of tensors"}; }
  std::vector<Leaf> parts(const Leaf&) const override { return parts_; }

 private:
  /// Copies the part of the run at offset `at` that is inside [begin, begin + into.size()) to
  /// `into`.
  void copy_run(const std::byte* run, std::uint64_t at, std::uint64_t begin,
                std::span<std::byte> into) const {
    const std::uint64_t from = std::max(at, begin);
    const std::uint64_t to = std::min(at + run_bytes_, begin + into.size());
    if (from >= to) return;
    std::memcpy(into.data() + (from - begin), run + (from - at),
                static_cast<std::size_t>(to - from));
  }

  std::vector<Leaf> parts_;
  std::uint64_t run_bytes_;
};

}  // namespace

Leaf slice_leaf(const Leaf& dense, const FixedDims& fixed) {
  Shape shape = dense.shape();
  for (auto dim = fixed.rbegin(); dim != fixed.rend(); ++dim)
    shape.erase(shape.begin() + dim->first);
  return stored_leaf(dense.dtype(), std::move(shape), std::make_shared<SliceSource>(dense, fixed),
                     0);
}

Leaf stack_leaves(std::vector<Leaf> parts, std::int64_t dim) {
  Shape shape = parts.front().shape();
  const DType dtype = parts.front().dtype();
  shape.insert(shape.begin() + dim, static_cast<std::int64_t>(parts.size()));
  return stored_leaf(dtype, std::move(shape),
                     std::make_shared<StackSource>(std::move(parts), static_cast<std::size_t>(dim)),
                     0);
}

}  // namespace tenfold::detail::formats::safetensors
