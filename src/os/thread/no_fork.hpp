#pragma once

namespace tenfold::os {

/// While one of these lives, on whichever thread, the process does not fork: fork() waits, and a
/// thread that begins one while another forks waits too. A child must not inherit a lock, or an
/// object half changed, of a thread that it does not have.
///
/// For threads of our own, and short: the program's fork() takes as long. A thread that has one
/// must not fork.
class NoFork {
 public:
  NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
  ~NoFork();
};

}  // namespace tenfold::os
