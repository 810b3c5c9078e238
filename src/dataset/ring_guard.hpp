#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "dataset/row_order.hpp"
#include "formats/folder/append/commit_page.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold {

namespace detail {
struct DatasetState;
}  // namespace detail
using detail::DatasetState;

/// Pauses between attempts to read rows of a circular buffer that are being overwritten. wait()
/// pauses once; the first pauses are very short. After about 10 seconds of pauses it throws
/// Error(io) (EAGAIN), because the writer has stopped, or overwrites rows faster than they can be
/// copied.
class RingWait {
 public:
  explicit RingWait(const std::string& where) : where_(where) {}
  void wait();

 private:
  const std::string& where_;
  int num_waits_ = 0;
};
/// Sets the number of pauses after which a RingWait throws, and returns the previous value. For
/// tests.
int set_ring_patience(int num_waits) noexcept;

/// The slots [begin, end).
struct SlotRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The slots [0, num_rows) that are not busy: a range before the busy slots, and a range after
/// them. Each range may be empty. A slot is busy while its row is written, and after a failed
/// write.
std::array<SlotRange, 2> settled_slots(const detail::formats::folder::CommitState& state,
                                       std::uint64_t capacity, std::int64_t num_rows);

/// The commit page of a circular buffer whose rows are read while they may be overwritten.
///
/// Thread safety: all members may be called from any thread.
class RingGuard {
 public:
  /// Null unless `tree` is the folder of a circular buffer.
  static std::shared_ptr<const RingGuard> of(const TensorDict& tree);

  /// The current state. Does not wait for the end of a write.
  detail::formats::folder::CommitState now() const;
  /// Waits for the end of a write in progress, and returns the state. Stops waiting if the writer
  /// crashed. Throws the errors of RingWait::wait().
  detail::formats::folder::CommitState settled() const;
  std::uint64_t capacity() const noexcept { return capacity_; }
  const std::string& where() const noexcept { return file_.display(); }
  /// True while a writer holds the lock: from its first append until it closes the buffer or its
  /// process ends.
  bool has_writer() const;
  /// The order of the slots [0, num_rows), after the end of a write in progress. Omits slots whose
  /// rows are incomplete after a failed write or a crash, and warns about them. Throws the errors
  /// of settled().
  RowOrderPtr order(std::int64_t num_rows) const;

 private:
  RingGuard(os::Directory folder, os::File file, std::uint64_t capacity)
      : folder_(std::move(folder)), file_(std::move(file)), capacity_(capacity) {}

  os::Directory folder_;
  os::File file_;
  std::uint64_t capacity_;
};

/// The reader side of the seqlock: detects rows of circular buffers that were overwritten while
/// they were copied. Ignores rows that are not in a circular buffer.
class RingWatch {
 public:
  /// Must be constructed before the rows are copied.
  RingWatch(const DatasetState& state, std::span<const std::int64_t> rows);

  bool is_needed() const noexcept { return !parts_.empty(); }
  /// Path of the commit page of the first watched circular buffer.
  const std::string& where() const noexcept { return parts_.front().guard->where(); }
  /// The indices in `rows` of rows that may be torn and must be copied again. Throws
  /// Error(key_not_found) if a row remains torn because its write failed or its writer crashed.
  std::vector<std::size_t> torn() const;

 private:
  struct Part {
    const RingGuard* guard;
    std::vector<std::pair<std::uint64_t, std::size_t>> slots;  ///< for each watched row: its
                                                               ///< slot and its index in `rows`
    detail::formats::folder::CommitState before;
  };

  std::vector<Part> parts_;
};

}  // namespace tenfold
