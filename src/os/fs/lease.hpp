#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "os/fs/directory.hpp"
#include "os/process.hpp"

namespace tenfold::os {

/// Exclusive ownership of a name in a folder, respected by processes on this host and on others.
///
/// A lease is a symbolic link whose target identifies its holder: boot ID, process ID namespace,
/// process ID, start time of the process, a random number, host. symlink(2) creates name and target
/// in one step, and needs no file locks (NFSv4 and Lustre often have none). On file systems without
/// symbolic links, a small file holds the same text.
///
/// The holder refreshes the modification time every 30 s, unless another process has taken the
/// lease over. A dead lease may be removed by any process. If the boot ID and process ID namespace
/// of a lease are those of this process, the lease is dead if its holder has ended or, if the
/// holder is this process, has released it. Any other lease is dead if its modification time is
/// older than 10 minutes (the time-out), both by the clock of this host and by that of the file
/// system.
///
/// A forked child neither holds nor releases the leases of its parent.
class Lease {
 public:
  /// Acquires the lease `name`; removes a dead lease first. Returns nullopt if an entry `name`
  /// exists that is not a dead lease, or that this process has no permission to remove. Also
  /// returns nullopt after five attempts during which other processes changed the entry. Throws
  /// Error(io) if no entry can be created in the folder.
  static std::optional<Lease> try_acquire(const Directory& folder, const std::string& name);

  Lease() = default;
  Lease(Lease&& other) noexcept = default;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease() { release(); }

  /// True in the process that acquired the lease, as long as the link identifies this lease. If
  /// this process was stopped for longer than the time-out, a process on another host or in another
  /// process ID namespace may have taken the lease over.
  bool is_held() const;
  /// Removes the link if is_held(). If the removal fails, the lease is dead for this process at
  /// once. It is dead for other processes of this host and process ID namespace when this process
  /// ends, and for all others after the time-out.
  void release() noexcept;

 private:
  Lease(std::shared_ptr<Directory> folder, std::string name, std::string text);

  /// Shared with the thread that refreshes leases; null: this object holds no lease.
  std::shared_ptr<Directory> folder_;
  std::string name_;
  std::string text_;
  OwnProcess process_;
};

/// True if there is an entry of that name that is not a dead lease.
bool is_leased(const Directory& folder, const std::string& name);

/// "process 123 on host", for messages; empty if the entry is missing, is not a lease, or names a
/// process or host with characters that are not printable.
std::string lease_holder(const Directory& folder, const std::string& name);

/// Exclusive ownership of one open file: flock, or a Lease if the file system has no locks. The
/// destructor releases the Lease. A flock is released when the file is closed.
class WriterLock {
 public:
  /// Returns nullopt if another process, or another open file description of this process, holds
  /// the lock. `name`: the name of `file` in `folder`. `file` must stay open as long as the lock is
  /// needed. Throws Error(io) if a Lease is needed and cannot be created.
  static std::optional<WriterLock> try_acquire(const Directory& folder, const std::string& name,
                                               File& file);
  /// Like try_acquire(), but also returns nullopt if the entry `name` is no longer `file`, because
  /// the previous holder replaced it. In that case `file` may keep a flock until it is closed.
  static std::optional<WriterLock> try_acquire_current(const Directory& folder,
                                                       const std::string& name, File& file);
  /// False if the lock is a Lease that this process no longer holds. A flock counts as held.
  bool is_held() const;
  /// True if any process holds the lock through another open file description than that of `file`.
  /// Takes a shared flock for a moment, during which try_acquire() through another open file
  /// description fails. `file` must not hold the lock itself, because this function would release
  /// it.
  static bool is_locked(const Directory& folder, const std::string& name, File& file);

 private:
  std::optional<Lease> lease_;  ///< used if the file is not locked by flock
};

/// The process that holds a flock on `file`, if /proc/locks lists it.
std::optional<std::uint64_t> lock_holder(const FileInfo& file);
/// " by process 123", or "" if unknown. For messages.
std::string held_by(const FileInfo& file);

/// Sets the time-out of leases and returns the previous one. For tests.
std::chrono::seconds set_lease_timeout(std::chrono::seconds timeout);

/// Sets the interval at which holders refresh their leases, and returns the previous one. For
/// tests. A thread that is already waiting first completes the previous interval.
std::chrono::milliseconds set_lease_heartbeat(std::chrono::milliseconds interval);

/// If false, leases are created as small files, as on a file system without symbolic links. For
/// tests; returns the previous setting.
bool set_symlinks_supported(bool supported) noexcept;

}  // namespace tenfold::os
