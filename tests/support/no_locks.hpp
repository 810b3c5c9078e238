#pragma once

#include <cerrno>

#include "os/fault.hpp"

namespace tenfold::test {

/// While it lives, flock fails as on a file system without locks.
class NoLocks : public os::ChangeObserver {
 public:
  explicit NoLocks(int system_errno = ENOLCK)
      : system_errno_(system_errno), previous_(os::set_change_observer(this)) {}
  ~NoLocks() override { os::set_change_observer(previous_); }
  NoLocks(const NoLocks&) = delete;
  NoLocks& operator=(const NoLocks&) = delete;

  void before(const os::Change&) override {}
  void after(const os::Change&, std::uint64_t) override {}
  int lock_errno() override { return system_errno_; }

 private:
  int system_errno_;
  os::ChangeObserver* previous_;
};

}  // namespace tenfold::test
