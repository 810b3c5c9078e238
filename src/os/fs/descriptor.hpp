#pragma once

#include <sys/file.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "os/process.hpp"

namespace tenfold::os {

/// An owned file descriptor, closed once; move-only. After set_lock_owned(true), the process that
/// called it releases the flock before it closes the descriptor. Otherwise a forked child, which
/// inherits the descriptor, would keep the lock until it closes the descriptor or ends.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), lock_owner_(std::exchange(other.lock_owner_, {})) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
      lock_owner_ = std::exchange(other.lock_owner_, {});
    }
    return *this;
  }
  ~Descriptor() { close(); }

  bool valid() const noexcept { return fd_ >= 0; }
  int get() const noexcept { return fd_; }

  void close() noexcept {
    unlock_if_owned();
    // Do not retry after EINTR: Linux has already closed the descriptor.
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

  /// Records whether this process owns an exclusive flock on the descriptor.
  void set_lock_owned(bool owned) noexcept {
    lock_owner_ = owned ? std::optional(OwnProcess()) : std::nullopt;
  }
  /// Releases an owned lock, and transfers the ownership of the descriptor to the caller.
  int release() noexcept {
    unlock_if_owned();
    return std::exchange(fd_, -1);
  }

 private:
  void unlock_if_owned() noexcept {
    // Does not unlock in a forked child, because the lock belongs to its parent.
    if (fd_ >= 0 && lock_owner_ && lock_owner_->is_here()) ::flock(fd_, LOCK_UN);
    lock_owner_.reset();
  }

  int fd_ = -1;
  std::optional<OwnProcess> lock_owner_;  ///< the process whose lock must be released
};

}  // namespace tenfold::os
