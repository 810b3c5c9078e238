#pragma once

#include <csignal>

namespace tenfold::cli {

/// During the lifetime of this object, interrupted() returns true after Ctrl-C, and the command
/// stops when it next checks that. A command that is done prints nothing then. A second Ctrl-C ends
/// the program at once. If interrupts were ignored before (nohup, a background job), they stay
/// ignored.
class InterruptGuard {
 public:
  InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

 private:
  void (*previous_)(int);
};

/// Exit status of an interrupted program, as shells report it for a program that SIGINT ended.
inline constexpr int kExitInterrupted = 130;

bool interrupted() noexcept;

/// Thrown by throw_if_interrupted().
struct Interrupted {};

void throw_if_interrupted();

}  // namespace tenfold::cli
