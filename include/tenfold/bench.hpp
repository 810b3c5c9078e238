#pragma once

#include <cstdint>
#include <limits>

#include <tenfold/io.hpp>

namespace tenfold {

/// A speed in bytes per second, with a cold and a warm page cache; NaN if not measured.
struct BenchSpeed {
  double cold = std::numeric_limits<double>::quiet_NaN();  ///< speed of reading from the disk
  double warm = std::numeric_limits<double>::quiet_NaN();  ///< speed of reading from the page cache
};

/// The speed of one kind of access and, for comparison, the speed of pread. pread reads at most 512
/// of the same files, and at most the same number of bytes.
struct BenchPart {
  std::uint64_t num_bytes = 0;  ///< bytes read
  BenchSpeed speed;             ///< speed of this library
  BenchSpeed limit;             ///< speed of pread
};

/// The result of bench().
struct BenchReport {
  BenchPart read;  ///< reading all tensors sequentially
  /// Random rows of the largest nonempty tensor that has two or more rows and is not nested; not
  /// measured if there is none.
  BenchPart gather;
  std::uint64_t row_bytes = 0;  ///< bytes read of each row: the row or a part of it
  int num_threads = 0;          ///< number of reading threads
};

/// Options of bench().
struct BenchOptions {
  std::uint64_t max_bytes = std::uint64_t{1} << 30;  ///< greatest number of bytes per access kind
  int num_threads = 0;                               ///< 0: TENFOLD_NUM_THREADS, or min(8, cores)
  Monitor* monitor = nullptr;                        ///< observes the call
};

/// Measures how fast the data at `path`, in any format, is read on this machine, and how fast pread
/// reads the same files. Before a cold measurement, the files' pages are dropped from the page
/// cache. If the system keeps the pages, for example because they are mapped or not yet written to
/// the disk, the cold speeds are NaN. Nothing is written. Throws what open() and Leaf::read throw.
TENFOLD_API BenchReport bench(const Path& path, const BenchOptions& options = {});

}  // namespace tenfold
