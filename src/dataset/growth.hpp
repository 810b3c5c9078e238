#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <tenfold/dataset.hpp>

#include "dataset/dataset_state.hpp"
#include "dataset/in_place_writes.hpp"
#include "dataset/row_bytes.hpp"
#include "formats/folder/append/appendable.hpp"
#include "os/thread/fork_safe_lock.hpp"

namespace tenfold {

namespace detail {

/// The rows of a data set that was opened from a path. append() adds rows; refresh() reads the rows
/// that other objects and processes have appended.
///
/// Thread safety: all members may be called from any thread; each append is atomic. If the process
/// forks while another thread calls a member, the child opens the path again, for reading only.
class Growth {
 public:
  static std::shared_ptr<Growth> open(const Path& path, Mode mode);

  virtual ~Growth() = default;
  virtual std::shared_ptr<const DatasetState> state() = 0;
  virtual std::int64_t size() = 0;
  virtual std::int64_t append(const Batch& rows) = 0;
  virtual void update(std::span<const std::int64_t> positions, const Batch& rows) = 0;
  virtual void flush() = 0;
  virtual void close() = 0;
  virtual void refresh() = 0;
  virtual std::int64_t capacity() = 0;
  virtual std::int64_t cursor() = 0;
};

/// Throws Error(io) with ESTALE if a data set has other columns than when it was opened.
void require_same_columns(const Path& path, const Schema& found, const Schema& opened);

/// Implements Growth for a data set in any format. PartsGrowth implements it for a data set of
/// parts that is opened for writing. Rows can be added only to a folder of the format `memmap`.
class FolderGrowth final : public Growth {
 public:
  FolderGrowth(const Path& path, Mode mode);

  std::shared_ptr<const DatasetState> state() override;
  std::int64_t size() override;
  std::int64_t append(const Batch& rows) override;
  void update(std::span<const std::int64_t> positions, const Batch& rows) override;
  void flush() override;
  void close() override;
  void refresh() override;
  std::int64_t capacity() override;
  std::int64_t cursor() override;

 private:
  using Lock = std::lock_guard<os::RenewingMutex>;

  std::shared_ptr<const DatasetState> open_state() const;
  const std::shared_ptr<const DatasetState>& current();
  std::int64_t known_size();
  void forget() noexcept;
  void renew() noexcept;
  void start();
  /// The leaves to append to. `is_exact`: throw if there are elements after those of the last row.
  std::vector<detail::formats::folder::GrowingLeaf> leaves_of(const DatasetState& state,
                                                              bool is_exact);

  os::RenewingMutex mutex_{[this] { renew(); }};  ///< guards the members below
  detail::formats::folder::AppendableFolder folder_;
  std::shared_ptr<const DatasetState> state_;  ///< null if it must be opened again
  std::int64_t size_ = -1;                     ///< number of rows; negative: unknown
  Schema schema_;                              ///< never changes
  std::vector<LeafRole> roles_;
  std::shared_ptr<InPlaceWrites> in_place_;  ///< null unless the data set is open for writing
};

}  // namespace detail

using detail::Growth;

}  // namespace tenfold
