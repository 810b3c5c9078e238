#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stores/dataset_state.hpp"

namespace tenfold {

/// Has the pages of coming batches read before they are gathered, all of a batch at once: a reader
/// that touches one page after the other gets 20 thousand of them a second from a device that gives
/// 90 thousand. Data that is in memory already costs nothing but a look now and then.
///
/// Thread safety: ask() may be called from many threads.
class Residency {
 public:
  /// `random`: rows come in no order, so that nothing should be read beside them.
  Residency(const DatasetState& state, bool random);
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;
  ~Residency();

  /// True if some of the data is not in memory.
  bool is_needed() const noexcept { return needed_; }
  /// Asks for what these rows (of all parts, numbered through) need.
  void ask(std::span<const std::int64_t> rows) const;

 private:
  struct Source {
    std::span<const std::byte> bytes;
    std::uint64_t row_bytes;
    std::uint64_t stride_bytes;
    std::int64_t first_row;
    std::int64_t num_rows;
  };

  void add(const DatasetPart& part, const Tensor& tensor, std::uint64_t row_bytes,
           std::uint64_t stride_bytes);
  bool looks_resident() const;

  std::vector<Source> sources_;
  bool random_;
  bool needed_ = false;
};

}  // namespace tenfold
