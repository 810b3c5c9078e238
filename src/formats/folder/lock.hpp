#pragma once

#include <vector>

#include <tenfold/io.hpp>

#include "os/fs/directory.hpp"

namespace tenfold::detail::formats::folder {

/// What a write-through handle holds, as shared flocks: its folder, and those above it as long as
/// they are nodes of a tree, too (they have a meta.json), so that none of them is replaced.
struct WriteThroughLock {
  os::Directory folder;
  std::vector<os::Directory> above;

  /// Lets others replace them, though descriptors that share the locks may still be open.
  void release() noexcept;
};

/// Error(io) if a replacement of one of them is under way.
WriteThroughLock lock_for_writing_through(const Path& path);

}  // namespace tenfold::detail::formats::folder
