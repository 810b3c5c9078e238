#pragma once

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

struct DatasetState;

/// Waits while somebody writes over rows of a ring, most shortly at first. Throws Error(io)
/// (EAGAIN) after some 10 seconds of waiting: their writer is stopped, or faster than they are
/// copied.
class RingWait {
 public:
  explicit RingWait(const std::string& where) : where_(where) {}
  void wait();

 private:
  const std::string& where_;
  int num_waits_ = 0;
};
/// How often a RingWait waits. For tests; returns what was set before.
int set_ring_patience(int num_waits) noexcept;

/// The `%commit` of a ring whose rows are read while somebody may write over them.
///
/// Thread safety: as of a const object.
class RingGuard {
 public:
  /// Null if `tree` is not the folder of a ring.
  static std::shared_ptr<const RingGuard> of(const TensorDict& tree);

  detail::formats::folder::CommitState now() const;
  /// As it is between two writes, or as a killed one left it. Throws as RingWait.
  detail::formats::folder::CommitState settled() const;
  std::uint64_t capacity() const noexcept { return capacity_; }
  const std::string& where() const noexcept { return file_.display(); }
  /// True while some process has it open for writing.
  bool has_writer() const;
  /// The first `num_rows` slots but for the busy ones. Warns if these are gone for good.
  RowOrderPtr order(std::int64_t num_rows) const;

 private:
  RingGuard(os::Directory folder, os::File file, std::uint64_t capacity)
      : folder_(std::move(folder)), file_(std::move(file)), capacity_(capacity) {}

  os::Directory folder_;
  os::File file_;
  std::uint64_t capacity_;
};

/// Rows that are copied out of rings (and of other tables, which it leaves alone) while they may be
/// written over.
class RingWatch {
 public:
  /// To be made before the rows are copied.
  RingWatch(const DatasetState& state, std::span<const std::int64_t> rows);

  bool is_needed() const noexcept { return !parts_.empty(); }
  /// The `%commit` of a ring that is watched.
  const std::string& where() const noexcept { return parts_.front().guard->where(); }
  /// Which of the rows (their places in `rows`) may have been copied in parts: they are to be
  /// copied again. Throws Error(key_not_found) if one stays in parts, because its writer was
  /// killed.
  std::vector<std::size_t> torn() const;

 private:
  struct Part {
    const RingGuard* guard;
    std::vector<std::pair<std::uint64_t, std::size_t>> slots;  ///< and their places
    detail::formats::folder::CommitState before;
  };

  std::vector<Part> parts_;
};

}  // namespace tenfold
