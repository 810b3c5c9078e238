#pragma once

#include <tenfold/io.hpp>
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
/// less. Here a thread asks for the pages in large pieces, before they are touched. Pages that are
/// cached already are entered into the map by two threads, so that whoever comes later does not
/// even take faults. Nothing is copied on the way: `pread` into a buffer brings pages into memory
/// as well, and takes several times the time of the CPU.
///
/// A hint: an error is met by the one who touches the leaf. Leaves whose last tensor is gone are
/// skipped.
class ReadAhead {
 public:
  /// False for little data, whose faults are few, for more than half of the memory that is free,
  /// where pages would go again before they are used, and for files that are written through, of
  /// which people touch a few rows.
  static bool is_worthwhile(std::uint64_t total_bytes, Mode mode);

  /// `tensor` maps a file.
  void add(const Tensor& tensor);

  /// Starts and returns at once.
  void start() &&;

 private:
  struct Piece {
    std::size_t owner = 0;
    std::span<std::byte> bytes;
  };

  std::vector<std::weak_ptr<const void>> owners_;
  std::vector<Piece> pieces_;
};

}  // namespace tenfold
