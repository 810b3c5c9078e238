#pragma once

#include <tenfold/io.hpp>
#include <tenfold/leaf.hpp>
#include <tenfold/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tenfold {

/// Brings mapped leaves into memory before somebody touches them, in the order they were added.
///
/// A page that is touched before it is in memory stops its reader for one request to the device,
/// and one reader so waits for one request after the other: half of what the device can do, or
/// less. Here a few threads read ahead with `pread`, which keeps several requests under way, and
/// enter the pages into the map, so that whoever comes later does not even take faults.
///
/// A hint: an error is met by the one who touches the leaf. Leaves whose last tensor is gone are
/// skipped.
class ReadAhead {
 public:
  /// False for little data, whose faults are few, for more than half of the memory that is free,
  /// where pages would go again before they are used, and for files that are written through, of
  /// which people touch a few rows.
  static bool is_worthwhile(std::uint64_t total_bytes, Mode mode);

  /// `leaf` is still on disk; `tensor` maps it.
  void add(const Leaf& leaf, const Tensor& tensor);

  /// Starts and returns at once.
  void start() &&;

 private:
  struct Piece {
    std::size_t leaf = 0;
    std::uint64_t offset_bytes = 0;
    std::span<std::byte> bytes;
  };

  std::vector<Leaf> leaves_;
  std::vector<std::weak_ptr<const void>> owners_;
  std::vector<Piece> pieces_;
};

}  // namespace tenfold
