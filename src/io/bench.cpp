#include <tenfold/bench.hpp>
#include <tenfold/error.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/format.hpp"
#include "formats/shared/hub_cache.hpp"
#include "formats/shared/hub_index.hpp"
#include "formats/shared/progress.hpp"
#include "io/registry.hpp"
#include "io/tree.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/memory/advice.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold {
namespace {

constexpr std::uint64_t kBytesReadPerTask = std::uint64_t{4} << 20;
constexpr std::uint64_t kBytesPerRead = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxRows = 4096;  ///< maximum number of gathered rows
/// Numbers of measured rounds without and with cached pages. The best round is reported.
constexpr int kColdRounds = 3;
constexpr int kWarmRounds = 3;

/// A byte range of a source, which is a tensor or a file.
struct BenchRange {
  std::size_t source = 0;
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
};

using ReadPiece =
    std::function<void(std::size_t source, std::uint64_t begin, std::span<std::byte> into)>;

/// Splits the sources, in order, into ranges of up to kBytesReadPerTask. Stops when the ranges have
/// `max_bytes` in total.
std::vector<BenchRange> ranges_of(const std::vector<std::uint64_t>& sizes,
                                  std::uint64_t max_bytes) {
  std::vector<BenchRange> ranges;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    for (std::uint64_t begin = 0; begin < sizes[i]; begin += kBytesReadPerTask) {
      const std::uint64_t size = std::min({kBytesReadPerTask, sizes[i] - begin, max_bytes});
      if (size == 0) return ranges;
      ranges.push_back({i, begin, size});
      max_bytes -= size;
    }
  }
  return ranges;
}

std::uint64_t total_of(const std::vector<BenchRange>& ranges) {
  std::uint64_t total = 0;
  for (const BenchRange& range : ranges) total += range.size_bytes;
  return total;
}

/// Pseudo-random numbers (splitmix64) with a fixed seed.
class Random {
 public:
  std::uint64_t below(std::uint64_t limit) {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return (z ^ (z >> 31)) % limit;
  }

 private:
  std::uint64_t state_ = 1;
};

/// The files of a checkpoint on disk.
class Files {
 public:
  explicit Files(const Path& path) {
    if (os::file_info(path).is_directory) {
      add_folder(os::Directory::open(path));
      return;
    }
    files_.push_back(os::File::open_read(path));
    const detail::formats::Format* const format = format_of_content(path, "").format;
    if (format == &detail::formats::safetensors::kShardedFormat ||
        format == &detail::formats::torch_file::kShardedFormat) {
      add_shards(path);
    }
  }

  std::vector<std::uint64_t> sizes() const {
    std::vector<std::uint64_t> sizes;
    for (const os::File& file : files_) sizes.push_back(file.size_bytes());
    return sizes;
  }
  void read(std::size_t file, std::uint64_t begin, std::span<std::byte> into) const {
    files_[file].read_at(begin, into);
  }
  /// Returns false if some pages stay in the page cache.
  bool drop_from_page_cache() const {
    bool dropped = true;
    for (const os::File& file : files_) dropped &= os::drop_from_page_cache(file);
    return dropped;
  }

 private:
  /// Maximum number of open files; further files are ignored.
  static constexpr std::size_t kMaxFiles = 512;

  void add_file(os::File file) {
    if (files_.size() < kMaxFiles) files_.push_back(std::move(file));
  }
  /// Adds the shards of the index at `path`. The index itself is already in `files_`.
  void add_shards(const Path& path) {
    using namespace detail::formats;
    const std::string text = files_.front().read_all(kMaxHubIndexBytes);
    const HubIndex index = parse_hub_index(text, path.string());
    for (os::File& shard : open_indexed(folder_of_shards(path, index), index, path.string())) {
      add_file(std::move(shard));
    }
  }
  void add_folder(const os::Directory& folder) {
    std::vector<std::string> names = folder.list();
    std::ranges::sort(names);
    for (const std::string& name : names) {
      const auto info = folder.entry_info(name);
      if (!info) continue;
      if (info->is_regular) {
        add_file(os::File::open_read_at(folder, name));
      } else if (info->is_symlink && detail::formats::is_cache_link(folder, name)) {
        add_file(detail::formats::open_shard(folder, name, folder.display()));
      } else if (info->is_directory) {
        add_folder(os::Directory::open_at(folder, name));
      }
    }
  }

  std::vector<os::File> files_;
};

class Bench {
 public:
  Bench(const Path& path, const BenchOptions& options)
      : path_(path),
        files_(path),
        num_threads_(os::num_threads_for(options.num_threads)),
        max_bytes_(options.max_bytes),
        progress_(options.monitor, 0, "bench") {}

  BenchReport run() {
    BenchReport report;
    report.num_threads = num_threads_;
    const std::vector<std::uint64_t> file_sizes = files_.sizes();
    std::vector<std::uint64_t> leaf_sizes;
    for (const NamedLeaf& named : tensors_of(open(path_)))
      leaf_sizes.push_back(named.leaf.nbytes());

    const std::vector<BenchRange> tensors = ranges_of(leaf_sizes, max_bytes_);
    report.read.num_bytes = total_of(tensors);
    const std::vector<BenchRange> files = ranges_of(file_sizes, report.read.num_bytes);
    measure(report.read, tensors, files);

    const std::vector<BenchRange> rows = rows_of(leaf_sizes);
    if (!rows.empty()) {
      report.row_bytes = rows.front().size_bytes;
      report.gather.num_bytes = total_of(rows);
      measure(report.gather, rows, places_in_files(file_sizes, rows));
    }
    progress_.finish();
    return report;
  }

 private:
  /// Opens the tree again, so that it has no cached mappings or copies, and returns a function that
  /// reads from its leaves.
  ReadPiece reader_of_leaves() const {
    std::vector<Leaf> leaves;
    for (NamedLeaf& named : tensors_of(open(path_))) leaves.push_back(std::move(named.leaf));
    return [leaves = std::move(leaves)](std::size_t i, std::uint64_t begin,
                                        std::span<std::byte> into) { leaves[i].read(begin, into); };
  }

  /// Returns random rows of the largest dense tensor that has at least two rows, or nothing if
  /// there is none. Truncates longer rows to kBytesPerRead.
  std::vector<BenchRange> rows_of(const std::vector<std::uint64_t>& sizes) const {
    const std::vector<NamedLeaf> leaves = tensors_of(open(path_));
    std::optional<std::size_t> largest;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const Shape& shape = leaves[i].leaf.shape();
      if (leaves[i].leaf.is_nested() || shape.empty() || shape[0] < 2 || sizes[i] == 0) continue;
      if (!largest || sizes[i] > sizes[*largest]) largest = i;
    }
    if (!largest) return {};
    const auto num_rows = static_cast<std::uint64_t>(leaves[*largest].leaf.shape()[0]);
    const std::uint64_t row_bytes = sizes[*largest] / num_rows;
    const std::uint64_t size = std::min(row_bytes, kBytesPerRead);
    Random random;
    std::vector<BenchRange> rows;
    const std::uint64_t count = std::min(kMaxRows, std::max<std::uint64_t>(max_bytes_ / size, 1));
    for (std::uint64_t i = 0; i < count; ++i) {
      rows.push_back({*largest, random.below(num_rows) * row_bytes, size});
    }
    return rows;
  }

  /// Returns, for each of `rows`, a random range of the row's size in the largest file, or the
  /// whole file if it is smaller than the row.
  static std::vector<BenchRange> places_in_files(const std::vector<std::uint64_t>& sizes,
                                                 const std::vector<BenchRange>& rows) {
    if (sizes.empty()) return {};
    const auto largest = static_cast<std::size_t>(std::ranges::max_element(sizes) - sizes.begin());
    Random random;
    std::vector<BenchRange> places;
    for (const BenchRange& row : rows) {
      const std::uint64_t size = std::min(row.size_bytes, sizes[largest]);
      places.push_back({largest, random.below(sizes[largest] - size + 1), size});
    }
    return places;
  }

  /// Throughput of one round in bytes per second.
  double round(const std::vector<BenchRange>& ranges, const ReadPiece& read) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    // Combine many small ranges into one task.
    const std::size_t per_task = ranges.size() > 64 * static_cast<std::size_t>(num_threads_)
                                     ? ranges.size() / (16 * static_cast<std::size_t>(num_threads_))
                                     : 1;
    const std::size_t num_tasks = (ranges.size() + per_task - 1) / per_task;
    os::parallel_for(
        num_tasks, num_threads_,
        [&](std::size_t task) {
          std::vector<std::byte> scratch(static_cast<std::size_t>(kBytesPerRead));
          const std::size_t end = std::min(ranges.size(), (task + 1) * per_task);
          for (std::size_t i = task * per_task; i < end; ++i) {
            const BenchRange& range = ranges[i];
            for (std::uint64_t at = 0; at < range.size_bytes; at += kBytesPerRead) {
              const auto size =
                  static_cast<std::size_t>(std::min(kBytesPerRead, range.size_bytes - at));
              read(range.source, range.begin + at, std::span(scratch).first(size));
            }
          }
        },
        [&] { progress_.poll(); });
    const std::chrono::duration<double> seconds = Clock::now() - start;
    return static_cast<double>(total_of(ranges)) / std::max(seconds.count(), 1e-9);
  }

  /// Measures reads of files (`places`) and of tensors (`ranges`), and keeps the best round of
  /// each. The rounds alternate, because caches below the page cache (of a host or a controller)
  /// would favour the measurement that is done last.
  void measure(BenchPart& part, const std::vector<BenchRange>& ranges,
               const std::vector<BenchRange>& places) {
    if (ranges.empty()) return;
    const ReadPiece read_file = [this](std::size_t i, std::uint64_t begin,
                                       std::span<std::byte> into) { files_.read(i, begin, into); };
    for (int i = 0; i < kColdRounds; ++i) {
      cold_round(part.limit.cold, places, read_file);
      cold_round(part.speed.cold, ranges, reader_of_leaves());
    }
    const ReadPiece read_leaf = reader_of_leaves();
    round(places, read_file);
    round(ranges, read_leaf);
    for (int i = 0; i < kWarmRounds; ++i) {
      part.limit.warm = std::fmax(part.limit.warm, round(places, read_file));
      part.speed.warm = std::fmax(part.speed.warm, round(ranges, read_leaf));
    }
  }

  /// Drops the files from the page cache and measures one round. Measures nothing if pages stay
  /// cached. `read` must be ready: the time to open a tree is not part of a round.
  void cold_round(double& best, const std::vector<BenchRange>& ranges, const ReadPiece& read) {
    if (files_.drop_from_page_cache()) best = std::fmax(best, round(ranges, read));
  }

  const Path& path_;
  Files files_;
  int num_threads_;
  std::uint64_t max_bytes_;
  detail::formats::Progress progress_;
};

}  // namespace

BenchReport bench(const Path& path, const BenchOptions& options) {
  static_cast<void>(probe(path));  // reports an error if the path is not a tree
  return Bench(path, options).run();
}

}  // namespace tenfold
