#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "os/fs/directory.hpp"

namespace tenfold::os {

/// Exclusive ownership of a name in a folder, which processes on this host and on others respect.
///
/// A lease is a symbolic link whose text identifies its holder: boot ID, process ID namespace,
/// process ID, start time of the process, a random number, host. symlink(2) makes a name and its
/// text in one step, and needs no locks of the file system (NFSv4 and Lustre often have none). On
/// file systems without symbolic links a small file holds the same text.
///
/// The holder sets the modification time anew every 30 s. A lease is dead if its process is gone,
/// which is known for the same boot ID and process ID namespace, or if its modification time is
/// older than the file system's clock by more than the time-out of 10 minutes.
///
/// A forked child neither holds nor releases the leases of its parent.
class Lease {
 public:
  /// Takes over a dead lease; nothing if a living process holds it. Throws Error(io) if the folder
  /// allows no new entry.
  static std::optional<Lease> try_acquire(const Directory& folder, const std::string& name);

  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { release(); }

  /// True in the process that acquired it, while the link still names it: another host may have
  /// taken it over if this process was stopped for longer than the time-out.
  bool is_held() const;
  /// Removes the link, if this process holds it. What fails is left for the time-out.
  void release() noexcept;

 private:
  Lease(Directory folder, std::string name, std::string text);

  Directory folder_;
  std::string name_;
  std::string text_;
  std::uint64_t process_ = 0;  ///< that holds it; 0: none
};

/// True while a living process holds the lease.
bool is_leased(const Directory& folder, const std::string& name);

/// "process 123 on host", for messages; empty if there is no lease, or another file.
std::string lease_holder(const Directory& folder, const std::string& name);

/// Exclusive ownership of one open file: flock, and a Lease beside it where the file system has no
/// locks. Released when this object goes.
class WriterLock {
 public:
  /// Nothing if another process, or another open file description of this one, holds it. `name` is
  /// that of `file` in `folder`; `file` must outlive the lock.
  static std::optional<WriterLock> try_acquire(const Directory& folder, const std::string& name,
                                               File& file);
  /// True if somebody holds it.
  static bool is_locked(const Directory& folder, const std::string& name, File& file);

 private:
  std::optional<Lease> lease_;  ///< if the file is not locked by flock
};

/// The process that holds a flock on that file, where /proc/locks tells.
std::optional<std::uint64_t> lock_holder(const FileInfo& file);
/// " by process 123", or nothing if it is not known. For messages.
std::string held_by(const FileInfo& file);

/// Sets the time-out of leases, and returns what was set before. For tests.
std::chrono::seconds set_lease_timeout(std::chrono::seconds timeout);

/// False: Directory::create_symlink fails as on a file system without symbolic links. For tests;
/// returns what was set before.
bool set_symlinks_supported(bool supported) noexcept;

}  // namespace tenfold::os
