#pragma once

#include <cstdint>
#include <limits>

#include <tenfold/io.hpp>

namespace tenfold {

/// Bytes a second. NaN where nothing was measured.
struct BenchSpeed {
  double cold = std::numeric_limits<double>::quiet_NaN();  ///< from the device
  double warm = std::numeric_limits<double>::quiet_NaN();  ///< from the page cache
};

/// One kind of work, and as much of it done by nothing but pread on the same files.
struct BenchPart {
  std::uint64_t num_bytes = 0;
  BenchSpeed speed;
  BenchSpeed limit;
};

struct BenchReport {
  BenchPart read;    ///< tensors one after the other
  BenchPart gather;  ///< rows of the largest tensor, chosen at random; none if it has no rows
  std::uint64_t row_bytes = 0;  ///< of a row, or the part of one that was read
  int num_threads = 0;
};

struct BenchOptions {
  std::uint64_t max_bytes = std::uint64_t{1} << 30;  ///< read of each kind, at most
  int num_threads = 0;
  Monitor* monitor = nullptr;
};

/// Measures how fast the data at `path`, in any format, is read here, against the limit of disk and
/// memory. The pages of its files are dropped from the page cache before what is measured cold;
/// where the system keeps them (they are mapped, or on a file system in memory) cold figures are
/// NaN. Nothing is written. Throws what open() and Leaf::read throw.
TENFOLD_API BenchReport bench(const Path& path, const BenchOptions& options = {});

}  // namespace tenfold
