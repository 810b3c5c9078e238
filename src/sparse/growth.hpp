#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include <tenfold/sparse_matrix.hpp>

#include "formats/folder/append/appendable.hpp"
#include "os/thread/fork_safe_lock.hpp"
#include "sparse/state.hpp"

namespace tenfold {

namespace detail {

/// Implements a SparseMatrix that was opened from a path, and its functions append_rows(), flush(),
/// close() and refresh(). Rows that this object appends are visible at once. Rows that another
/// object or process has appended are visible after refresh().
///
/// Thread safety: all members may be called from any thread; each append is atomic. If the process
/// forks while another thread calls a member, the child process opens the path again, read-only.
class SparseGrowth {
 public:
  SparseGrowth(const Path& path, Mode mode);

  std::shared_ptr<const SparseState> state();
  void append(const SparseMatrix& rows);
  void flush();
  void close();
  void refresh();

 private:
  using Lock = std::lock_guard<os::RenewingMutex>;

  const std::shared_ptr<const SparseState>& current();
  void start();
  void renew() noexcept;

  os::RenewingMutex mutex_{[this] { renew(); }};  ///< guards the members below
  detail::formats::folder::AppendableFolder folder_;
  std::shared_ptr<const SparseState> state_;  ///< null if rows were appended since the last read
};

}  // namespace detail

using detail::SparseGrowth;

}  // namespace tenfold
