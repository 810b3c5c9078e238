#pragma once

#include <csignal>

namespace tenfold::cli {

/// While it lives, Ctrl-C asks the command to stop, and a second one ends the program at once.
/// Where interrupts were ignored before (nohup, a background job), they stay ignored.
class InterruptGuard {
 public:
  InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();

 private:
  void (*previous_)(int);
};

/// What a program that was interrupted exits with, as a shell shows a death by SIGINT.
inline constexpr int kExitInterrupted = 130;

bool interrupted() noexcept;

/// Thrown by throw_if_interrupted().
struct Interrupted {};

void throw_if_interrupted();

}  // namespace tenfold::cli
