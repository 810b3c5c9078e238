#pragma once

#include <memory>
#include <string>
#include <thread>

#include "os/fs/directory.hpp"

namespace tenfold::checkpoint {

/// Removes folders in two steps: renames them to `.trash-<n>`, which hides them from readers, and
/// deletes their files on a separate thread. The next empty() retries deletions that failed or were
/// interrupted.
class Trash {
 public:
  Trash() = default;
  Trash(const Trash&) = delete;
  Trash& operator=(const Trash&) = delete;
  ~Trash() { wait(); }

  /// Renames an entry to a trash name, and returns that name.
  static std::string put(os::Directory& directory, const std::string& name);
  /// Waits for the previous deletion, then starts to delete everything in the trash of `directory`.
  void empty(const os::Directory& directory);
  /// Waits until the deletion has finished.
  void wait();

 private:
  std::unique_ptr<std::thread> thread_;
  std::uint64_t process_ = 0;
};

}  // namespace tenfold::checkpoint
