#pragma once

#include <atomic>
#include <mutex>

#include "os/fs/directory.hpp"

namespace tenfold {

/// Removes the stored checksums of a data set that is open for writing, before callers change rows
/// through shared mappings.
///
/// Thread safety: all members may be called from any thread.
class InPlaceWrites {
 public:
  /// `folder`: the folder of the data set at `path`. It is invalid if the data set is a file, which
  /// has no checksums of tensors while it is open for writing.
  InPlaceWrites(os::Directory folder, os::Path path);

  /// Removes the checksums of the tensors, at the first call. Must be called before a caller gets
  /// writable memory that is mapped from the files. Throws what drop_leaf_checksums() throws.
  void begin();
  bool have_begun() const noexcept { return have_begun_; }

 private:
  std::mutex mutex_;  ///< locked by begin()
  os::Directory folder_;
  os::Path path_;
  std::atomic<bool> have_begun_ = false;
};

}  // namespace tenfold
