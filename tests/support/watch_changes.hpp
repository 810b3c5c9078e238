#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "os/fs/change_observer.hpp"

namespace tenfold::test {

/// Calls `before` before every change of the file system during its lifetime. `before` may throw or
/// end the process. The previous observer still decides whether flock and close fail, but does not
/// see the changes.
class WatchChanges : public os::ChangeObserver {
 public:
  using Before = std::function<void(const os::Change&)>;

  explicit WatchChanges(Before before)
      : before_(std::move(before)), previous_(os::set_change_observer(this)) {}
  ~WatchChanges() override { os::set_change_observer(previous_); }
  WatchChanges(const WatchChanges&) = delete;
  WatchChanges& operator=(const WatchChanges&) = delete;

  void before(const os::Change& change) override {
    if (before_) before_(change);
  }
  void after(const os::Change&, std::uint64_t) override {}
  int lock_errno() override { return previous_ == nullptr ? 0 : previous_->lock_errno(); }
  int close_errno() override { return previous_ == nullptr ? 0 : previous_->close_errno(); }

 private:
  Before before_;
  os::ChangeObserver* previous_;
};

/// Calls `action` once, before change number `at` (from 0), on the thread that makes the change.
/// Changes during `action`, by any thread, are not counted.
class AtChange : public WatchChanges {
 public:
  AtChange(std::size_t at, Before action)
      : WatchChanges([this, at, action = std::move(action)](const os::Change& change) {
          if (is_acting_ || next_.fetch_add(1) != at) return;
          is_acting_ = true;
          was_reached_ = true;
          action(change);
          is_acting_ = false;
        }) {}
  bool was_reached() const { return was_reached_; }

 private:
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> is_acting_{false};
  std::atomic<bool> was_reached_{false};
};

/// Lets flock() fail with `system_errno` during its lifetime, unless that is 0. EBADF, ENOSYS and
/// ENOLCK simulate a file system without locks, EWOULDBLOCK another process that holds all locks.
class FailLocks : public WatchChanges {
 public:
  explicit FailLocks(int system_errno) : WatchChanges(nullptr), system_errno_(system_errno) {}
  int lock_errno() override { return system_errno_; }

 private:
  int system_errno_;
};

/// Calls `act` before lookup number `when` (from 1) of the entry called `name`.
class BeforeLookup : public WatchChanges {
 public:
  BeforeLookup(std::string name, int when, std::function<void()> act)
      : WatchChanges(nullptr), name_(std::move(name)), when_(when), act_(std::move(act)) {}

  void before_read(const std::string& name) override {
    if (name != name_ || --when_ != 0) return;
    act_();
  }
  bool has_acted() const { return when_ <= 0; }

 private:
  std::string name_;
  int when_;
  std::function<void()> act_;
};

/// During its lifetime, each close of a written file calls `next`, and fails if `next` returns an
/// errno other than 0.
class FailCloses : public WatchChanges {
 public:
  explicit FailCloses(std::function<int()> next) : WatchChanges(nullptr), next_(std::move(next)) {}
  int close_errno() override { return next_(); }

 private:
  std::function<int()> next_;
};

}  // namespace tenfold::test
