#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "dataset/dataset_state.hpp"
#include "os/memory/mapped_files.hpp"
#include "os/memory/page_reader.hpp"

namespace tenfold {

/// Has the pages of coming batches read before they are gathered, all of a batch at once: a reader
/// that touches one page after the other gets a fifth of them a second. Data that is in memory
/// already costs nothing but a look at each start: to ask for a page takes a hundredth of the time
/// that it takes to wait for one, so rows are asked for only while more than that share of their
/// pages is missing, which looks at some of them tell; and once the first ones look as if nothing
/// were, the pages that some batches had to wait for.
///
/// The kernel is advised to read (madvise); on network file systems threads of ours read. The
/// environment variable TENFOLD_RESIDENCY=willneed, pread or none chooses instead.
///
/// Where rows of unequal length lie is only known from their ends. So rows are asked for in stages:
/// what has its place in the first, what the ends say in the second, the bytes of lists of texts in
/// the third. What a stage reads was asked for in the one before, some batches earlier.
///
/// Thread safety: ask() may be called from many threads, look_closer() from one at a time.
class Residency {
 public:
  static constexpr int kMaxStages = 3;

  /// `random`: rows come in no order, so that nothing should be read beside them.
  /// Throws Error(invalid_argument) if TENFOLD_RESIDENCY is no way there is.
  Residency(const DatasetState& state, bool random);
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;
  ~Residency();

  /// True if enough of the data is not in memory, as far as was looked, that asking pays.
  bool is_needed() const noexcept { return needed_.load(std::memory_order_acquire); }
  /// Looks at a little more of the data; false if there is no more to look at.
  bool look_closer();
  /// True if what these rows need is in memory.
  bool holds(std::span<const std::int64_t> rows) const;
  int num_stages() const noexcept { return num_stages_; }
  /// Asks for what these rows (of all parts, numbered through) need in one of the stages.
  void ask(std::span<const std::int64_t> rows, int stage);
  /// Looks at a few of the rows that are about to be asked for: if next to nothing of many is
  /// missing, it is needed no more.
  void reconsider(std::span<const std::int64_t> rows, int stage);
  /// To be told now and then while it is not needed: a batch of so many rows, which nobody had
  /// asked for, waited for that many pages.
  void note_waits(std::uint64_t num_pages, std::int64_t num_rows);
  /// "resident" if it was never needed, else "willneed", "pread" or "none".
  std::string_view way() const noexcept;

 private:
  enum class Way : std::uint8_t { willneed, pread, none };
  /// A tensor that rows need a piece of. A piece begins and ends where `column` says in the stages
  /// after the first.
  struct Source {
    std::span<const std::byte> bytes;
    std::uint64_t row_bytes;
    std::uint64_t stride_bytes;
    std::int64_t num_elements;
    int stage;
    const StoredColumn* column;
    std::int64_t first_row;
    std::int64_t num_rows;
    os::MappedFile mapped;  ///< if pages are read by pread
  };
  struct Piece {
    std::uint64_t offset_bytes;
    std::uint64_t size_bytes;
  };

  static std::optional<Way> way_from_environment();
  void add(const DatasetPart& part, const StoredColumn& column, const Tensor& tensor,
           std::uint64_t row_bytes, std::uint64_t stride_bytes, int stage);
  bool looks_resident(std::int64_t begin, std::int64_t end) const;
  void begin_asking();
  void end_asking();
  void choose_way();
  /// What row `local` of its part needs of it; nothing where the ends make no sense, of which
  /// whoever gathers the row tells.
  static Piece piece_of(const Source& source, std::int64_t local);
  /// Calls use(source, piece) for each row in each source of that stage.
  template <class Use>
  void for_each_piece(std::span<const std::int64_t> rows, int stage, const Use& use) const;
  void ask_kernel(std::span<const std::int64_t> rows, int stage) const;
  void ask_reader(std::span<const std::int64_t> rows, int stage);

  std::vector<Source> sources_;
  bool random_;
  int num_stages_ = 1;
  std::int64_t looked_at_ = 0;  ///< rows of each source
  std::optional<Way> forced_;
  Way way_ = Way::willneed;
  std::optional<os::PageReader> reader_;
  std::atomic<bool> was_needed_{false};  ///< what stands above does not change any more
  std::atomic<bool> needed_{false};
  std::mutex turning_;                        ///< held by who changes them
  std::atomic<std::int64_t> num_turns_{0};    ///< of reconsider()
  std::atomic<std::int64_t> num_looks_{0};    ///< of these, since it last came to a conclusion
  std::atomic<std::int64_t> num_missing_{0};  ///< found by them
};

}  // namespace tenfold
