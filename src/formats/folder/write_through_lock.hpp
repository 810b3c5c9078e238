#pragma once

#include <vector>

#include <tenfold/io.hpp>

#include "os/fs/directory.hpp"
#include "os/process.hpp"

namespace tenfold::detail::formats::folder {

/// Shared flocks on a folder that is open in mode write_through, and on its parent folders that are
/// nodes of the same tree (they have a meta.json). The locks keep saves from replacing these
/// folders.
struct WriteThroughLock {
  os::Directory folder;
  std::vector<os::Directory> above;
  os::OwnProcess process{};

  /// Releases the locks, even if descriptors that share them are still open. A forked child only
  /// closes its descriptors, because unlocking one would release the lock of the parent process.
  void release() noexcept;
};

/// Locks the folder at `path` and its parents that are nodes of a tree. The caller must call
/// release(). Throws Error(io) (EBUSY) if one of these folders is being replaced.
WriteThroughLock lock_for_writing_through(const Path& path);

/// The locks of lock_for_writing_through() for the lifetime of the object.
class ScopedWriteThroughLock {
 public:
  explicit ScopedWriteThroughLock(const Path& path) : lock_(lock_for_writing_through(path)) {}
  ScopedWriteThroughLock(const ScopedWriteThroughLock&) = delete;
  ScopedWriteThroughLock& operator=(const ScopedWriteThroughLock&) = delete;
  ~ScopedWriteThroughLock() { lock_.release(); }

  const os::Directory& folder() const noexcept { return lock_.folder; }

 private:
  WriteThroughLock lock_;
};

}  // namespace tenfold::detail::formats::folder
