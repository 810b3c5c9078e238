#pragma once

#include <memory>
#include <string>
#include <thread>

#include "os/fs/directory.hpp"

namespace tenfold::checkpoint {

/// Removes folders of a directory in two parts: a rename to `.trash-<n>`, after which they are gone
/// for all readers, and the removal of their files on a thread of its own. A removal that fails, or
/// is interrupted, is done again by the next one.
class Trash {
 public:
  Trash() = default;
  Trash(const Trash&) = delete;
  Trash& operator=(const Trash&) = delete;
  ~Trash() { wait(); }

  /// Renames an entry. Returns its new name.
  static std::string put(os::Directory& directory, const std::string& name);
  /// Starts to remove all that is in the trash of `directory`.
  void empty(const os::Directory& directory);
  /// Waits until that is done.
  void wait();

 private:
  std::unique_ptr<std::thread> thread_;
  std::uint64_t process_ = 0;
};

}  // namespace tenfold::checkpoint
