#pragma once

#include <unistd.h>

#include <utility>

namespace tenfold::os {

/// A file descriptor, closed once; move-only.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Descriptor() { close(); }

  bool valid() const noexcept { return fd_ >= 0; }
  int get() const noexcept { return fd_; }

  void close() noexcept {
    // Not repeated when interrupted: Linux has closed the descriptor by then.
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace tenfold::os
