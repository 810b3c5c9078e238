#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <tenfold/sparse_matrix.hpp>

#include "formats/folder/append/growing.hpp"
#include "formats/folder/lock.hpp"
#include "sparse/state.hpp"

namespace tenfold {

namespace detail {

/// A matrix that was opened from a path: it gets more rows when this process or, after refresh(),
/// another one appends.
///
/// Thread safety: all members may be called from any thread; each append is atomic.
class SparseGrowth {
 public:
  SparseGrowth(const Path& path, Mode mode);

  std::shared_ptr<const SparseState> state();
  void append(const SparseMatrix& rows);
  void flush();
  void close();
  void refresh();

 private:
  using Lock = std::lock_guard<std::mutex>;

  const std::shared_ptr<const SparseState>& current();
  void require_writable(const char* what) const;
  void start();

  const Path path_;
  const Mode mode_;
  detail::formats::folder::WriteThroughLock lock_;  ///< lock of a folder, held until close()
  std::mutex mutex_;                                ///< guards the members below
  std::shared_ptr<const SparseState> state_;        ///< null if rows were appended since the last
                                                    ///< read
  std::unique_ptr<detail::formats::folder::GrowingFolder> writer_;
  bool closed_ = false;
};

}  // namespace detail

using detail::SparseGrowth;

}  // namespace tenfold
