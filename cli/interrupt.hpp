#pragma once

#include <csignal>

namespace tenfold::cli {

/// While this object exists, Ctrl-C makes interrupted() return true, and the command stops at its
/// next check. If the command has finished but not printed yet, it does not print its result. A
/// second Ctrl-C ends the program at once. If interrupts were ignored before (nohup, a background
/// job), they stay ignored.
class InterruptGuard {
 public:
  InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

 private:
  void (*previous_)(int);
};

/// Exit status of an interrupted program. Shells report the same status for a program that SIGINT
/// ended.
inline constexpr int kExitInterrupted = 130;

bool interrupted() noexcept;

/// Thrown by throw_if_interrupted().
struct Interrupted {};

void throw_if_interrupted();

}  // namespace tenfold::cli
