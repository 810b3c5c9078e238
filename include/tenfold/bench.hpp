#pragma once

#include <cstdint>
#include <limits>

#include <tenfold/io.hpp>

namespace tenfold {

/// Bytes per second. NaN if not measured.
struct BenchSpeed {
  double cold = std::numeric_limits<double>::quiet_NaN();  ///< from the disk
  double warm = std::numeric_limits<double>::quiet_NaN();  ///< from the page cache
};

/// One kind of access, and the same amount by bare pread on the same files.
struct BenchPart {
  std::uint64_t num_bytes = 0;  ///< read
  BenchSpeed speed;             ///< by this library
  BenchSpeed limit;             ///< by bare pread
};

/// The result of bench().
struct BenchReport {
  BenchPart read;    ///< tensors, sequentially
  BenchPart gather;  ///< rows of the largest tensor, chosen at random; none if it has no rows
  std::uint64_t row_bytes = 0;  ///< of a row, or the part of one that was read
  int num_threads = 0;          ///< that read
};

/// Options of bench().
struct BenchOptions {
  std::uint64_t max_bytes = std::uint64_t{1} << 30;  ///< read of each kind, at most
  int num_threads = 0;                               ///< 0: min(8, cores)
  Monitor* monitor = nullptr;                        ///< observes the call
};

/// Measures how fast the data at `path`, in any format, is read on this machine, relative to the
/// limits of disk and memory. Before cold measurements, the pages of its files are dropped from the
/// page cache; if the system keeps them (they are mapped, or the file system is in memory), cold
/// figures are NaN. Nothing is written. Throws what open() and Leaf::read throw.
TENFOLD_API BenchReport bench(const Path& path, const BenchOptions& options = {});

}  // namespace tenfold
