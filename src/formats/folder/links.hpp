#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {

/// Refuses to write in place into files that other trees share by hard links: steps of a
/// CheckpointManager with `share_unchanged`, or copies by `cp -l`. Links within one tree are tied
/// tensors. Thread-safe.
class LinkGuard {
 public:
  /// A tree, or a node of one.
  explicit LinkGuard(const os::Directory& root) : root_(root.duplicate()) {}

  /// Throws Error(io) (EACCES) if the entry of that name is a file that has names outside of the
  /// tree, too.
  void require_own(const os::Directory& folder, const std::string& name);

 private:
  using Names = std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t>;
  static void count(const os::Directory& folder, std::size_t depth, Names& names);

  os::Directory root_;
  std::mutex mutex_;
  std::optional<Names> names_;  ///< within the tree, by device and inode; counted when needed
};

}  // namespace tenfold::detail::formats::folder
