#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dataset/dataset_state.hpp"
#include "os/memory/mapping.hpp"
#include "os/memory/page_reader.hpp"
#include "os/thread/fork_safe_lock.hpp"

namespace tenfold {

/// Prefetches the pages of coming batches before the batches are gathered. Prefetches all pages of
/// a batch at once, because a reader with one outstanding request gets a fifth as many pages per
/// second. Prefetching a cached page takes a hundredth of the time of waiting for a missing page,
/// so rows are prefetched only while enough pages are missing. This is determined by samples of the
/// page cache and, while prefetching is off, also by the major page faults of some batches. If all
/// data is cached, the only costs are the samples at the start of a pass and reads of the fault
/// counter for some batches.
///
/// Prefetches by madvise(MADV_WILLNEED), but on network and FUSE file systems by threads of the
/// library that read the pages. The environment variable TENFOLD_RESIDENCY=willneed, pread or none
/// overrides this choice.
///
/// The location of ragged rows is only known from their end offsets, so prefetching has stages. The
/// first stage prefetches data at known locations, the second the elements between end offsets, the
/// third the bytes of lists of strings. Each stage reads the offsets that the previous stage
/// prefetched some batches earlier.
///
/// Thread safety: sample_more() may be called from one thread at a time, other members from many.
class Residency {
 public:
  static constexpr int kMaxStages = 3;
  /// Tensors of fewer bytes are not prefetched, because reading them on demand takes less time.
  static constexpr std::uint64_t kMinBytes = std::uint64_t{1} << 20U;
  /// If this number of samples of a tensor are all cached, the tensor counts as cached. If one page
  /// in a hundred is missing, about half of all runs sample a missing page.
  static constexpr std::int64_t kSamplesInAll = 64;

  /// True if the pages of the samples [begin, end) are cached. Sample k is the first byte of
  /// element p(k), where p is a fixed random permutation. Element i is at `bytes` + i *
  /// `stride_bytes`.
  static bool is_sample_cached(std::span<const std::byte> bytes, std::uint64_t stride_bytes,
                               std::int64_t num_elements, std::int64_t begin, std::int64_t end);

  /// `random`: rows are accessed in random order, so readahead is disabled while pages are
  /// prefetched. Throws Error(invalid_argument) for an unknown value of TENFOLD_RESIDENCY.
  Residency(const DatasetState& state, bool random);
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;
  ~Residency();

  /// True if enough pages are missing for prefetching to pay off, according to the samples and page
  /// faults so far.
  bool is_needed() const noexcept { return needed_.load(std::memory_order_acquire); }
  /// Takes some more samples. Returns false, and takes none, if no more samples remain or
  /// is_needed() is true.
  bool sample_more();
  /// Returns true if all pages that prefetch() would prefetch for these rows are cached.
  bool holds(std::span<const std::int64_t> rows) const;
  int num_stages() const noexcept { return num_stages_; }
  /// Prefetches the data of these rows (numbered across all parts) that belongs to `stage`.
  void prefetch(std::span<const std::int64_t> rows, int stage);
  /// Samples a few of `rows`, which are about to be prefetched. Stops prefetching if nearly all of
  /// the samples of recent calls were cached.
  void reconsider(std::span<const std::int64_t> rows, int stage);
  /// Reports that gathering a batch of `num_rows` rows caused `num_pages` major page faults. Starts
  /// prefetching if these are many. Called for some batches while prefetching is off.
  void note_waits(std::uint64_t num_pages, std::int64_t num_rows);
  /// "resident" if prefetching was never needed, else "willneed", "pread" or "none".
  std::string_view strategy() const noexcept;

 private:
  enum class Strategy : std::uint8_t { willneed, pread, none };
  /// A tensor that has a piece for each row of a part. In stage 0 the piece is a row of the tensor;
  /// in later stages the end offsets in `column` are its bounds.
  struct Source {
    std::span<const std::byte> bytes;
    std::uint64_t row_bytes;
    std::uint64_t stride_bytes;
    std::int64_t num_elements;
    int stage;
    const StoredColumn* column;
    std::int64_t first_row;
    std::int64_t num_rows;
    const os::Mapping* mapping;            ///< the mapping of the tensor; null if in memory
    std::shared_ptr<const os::File> file;  ///< the mapped file, for pread; may be null
  };
  struct Piece {
    std::uint64_t offset_bytes;
    std::uint64_t size_bytes;
  };

  static std::optional<Strategy> strategy_from_environment();
  void add(const DatasetPart& part, const StoredColumn& column, const Tensor& tensor,
           std::uint64_t row_bytes, std::uint64_t stride_bytes, int stage);
  bool are_samples_cached(std::int64_t begin, std::int64_t end) const;
  void start_prefetching();
  void stop_prefetching();
  void choose_strategy();
  /// The piece for row `local` of the part. Empty if the row has no elements, or if its end offsets
  /// are invalid (gather() reports them).
  static Piece piece_of(const Source& source, std::int64_t local);
  /// Calls use(source, piece) for each nonempty piece of these rows in each source of `stage`.
  template <class Use>
  void for_each_piece(std::span<const std::int64_t> rows, int stage, const Use& use) const;
  void advise_kernel(std::span<const std::int64_t> rows, int stage) const;
  void queue_reads(std::span<const std::int64_t> rows, int stage);

  std::vector<Source> sources_;
  bool random_;
  int num_stages_ = 1;
  std::int64_t num_sampled_ = 0;  ///< number of rows sampled in each source
  std::optional<Strategy> forced_;
  Strategy strategy_ = Strategy::willneed;
  std::optional<os::PageReader> reader_;
  /// Once this is true, the members above do not change, except num_sampled_.
  std::atomic<bool> was_needed_{false};
  std::atomic<bool> needed_{false};
  os::ForkSafeLock lock_;                     ///< held while prefetching is started or stopped
  std::atomic<std::int64_t> num_calls_{0};    ///< calls of reconsider()
  std::atomic<std::int64_t> num_samples_{0};  ///< samples of reconsider() since its last decision
  std::atomic<std::int64_t> num_missing_{0};  ///< number of these samples with missing pages
};

}  // namespace tenfold
