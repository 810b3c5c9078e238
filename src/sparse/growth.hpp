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

/// A matrix that was opened from a path. It gets more rows when this process appends and, after
/// refresh(), when another process has appended.
///
/// Thread safety: all members may be called from any thread; each append is atomic. A child that is
/// forked while another thread calls one opens the path again, to read.
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
