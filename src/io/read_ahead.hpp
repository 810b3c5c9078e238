#pragma once

#include <tenfold/io.hpp>
#include <tenfold/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tenfold {

/// Prefetches mapped tensors into memory before they are accessed, in the order in which they were
/// added.
///
/// An access to a page that is not cached waits for one request to the device. So a thread that
/// reads without prefetching has one outstanding request, and gets only a part of the device's
/// throughput. With ReadAhead, a thread requests the pages in large pieces before they are used.
/// Pages that are already cached are mapped, so that later accesses do not even fault; two threads
/// do this if the first piece is cached. Nothing is copied: `pread` to a buffer would also bring
/// pages into the page cache, but take several times as much CPU time.
///
/// Prefetching is only a hint. It reports no errors; the later access does. Skips a mapping that no
/// tensor uses any more.
class ReadAhead {
 public:
  /// False for less than 16 MiB, which cause few page faults. False for more than half of the
  /// available memory, because pages could be evicted before they are used. False in mode
  /// write_through, because programs that use this mode usually access only a few rows.
  static bool is_worthwhile(std::uint64_t total_bytes, Mode mode);

  /// Adds a tensor that maps a file.
  void add(const Tensor& tensor);

  /// Starts the threads and returns at once.
  void start() &&;

 private:
  struct Piece {
    std::size_t owner = 0;
    std::span<const std::byte> bytes;
  };

  std::vector<std::weak_ptr<const void>> owners_;
  std::vector<Piece> pieces_;
};

}  // namespace tenfold
