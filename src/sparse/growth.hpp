#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include <tenfold/sparse_matrix.hpp>

#include "formats/folder/append/appendable.hpp"
#include "sparse/state.hpp"

namespace tenfold {

namespace detail {

/// A matrix that was opened from a path. It gets more rows when this process appends and, after
/// refresh(), when another process has appended.
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
  void start();

  std::mutex mutex_;  ///< guards the members below
  detail::formats::folder::AppendableFolder folder_;
  std::shared_ptr<const SparseState> state_;  ///< null if rows were appended since the last read
};

}  // namespace detail

using detail::SparseGrowth;

}  // namespace tenfold
