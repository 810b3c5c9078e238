#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "os/mapped_files.hpp"
#include "os/page_reader.hpp"
#include "stores/dataset_state.hpp"

namespace tenfold {

/// Has the pages of coming batches read before they are gathered, all of a batch at once: a reader
/// that touches one page after the other gets a fifth of them a second. Data that is in memory
/// already costs nothing but a look at each start.
///
/// The kernel is advised to read (madvise); on network file systems threads of ours read. The
/// environment variable TENFOLD_RESIDENCY=willneed, pread or none chooses instead.
///
/// Thread safety: ask() and look_closer() may be called from many threads.
class Residency {
 public:
  /// `random`: rows come in no order, so that nothing should be read beside them.
  /// Throws Error(invalid_argument) if TENFOLD_RESIDENCY is no way there is.
  Residency(const DatasetState& state, bool random);
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;
  ~Residency();

  /// True if some of the data is not in memory, as far as was looked.
  bool is_needed() const noexcept { return needed_.load(std::memory_order_acquire); }
  /// Looks at more of the data than was looked at before the first batch; the first time only.
  void look_closer();
  /// Asks for what these rows (of all parts, numbered through) need.
  void ask(std::span<const std::int64_t> rows);
  /// "resident", "willneed", "pread" or "none".
  std::string_view way() const noexcept;

 private:
  enum class Way : std::uint8_t { willneed, pread, none };
  struct Source {
    std::span<const std::byte> bytes;
    std::uint64_t row_bytes;
    std::uint64_t stride_bytes;
    std::int64_t first_row;
    std::int64_t num_rows;
    os::MappedFile mapped;  ///< if pages are read by pread
  };

  static std::optional<Way> way_from_environment();
  void add(const DatasetPart& part, const Tensor& tensor, std::uint64_t row_bytes,
           std::uint64_t stride_bytes);
  bool looks_resident(std::int64_t begin, std::int64_t end) const;
  void begin_asking();
  void choose_way();
  /// Calls use(source, where the row begins in it) for each row in each source.
  template <class Use>
  void for_each_row(std::span<const std::int64_t> rows, const Use& use) const;
  void ask_kernel(std::span<const std::int64_t> rows) const;
  void ask_reader(std::span<const std::int64_t> rows);

  std::vector<Source> sources_;
  bool random_;
  std::optional<Way> forced_;
  Way way_ = Way::willneed;
  std::optional<os::PageReader> reader_;
  std::atomic<bool> needed_{false};  ///< what stands above does not change any more
};

}  // namespace tenfold
