#pragma once

namespace tenfold::os {

/// Prevents the process from forking while an instance is alive on any thread. fork() waits for it;
/// a thread that constructs one while another thread forks waits too. A child must not inherit a
/// lock, or a half-changed object, of a thread that it does not have.
///
/// For short sections on our own threads: fork() of the program is delayed for as long. A thread
/// that has one must not fork.
class NoFork {
 public:
  NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
  ~NoFork();
};

}  // namespace tenfold::os
