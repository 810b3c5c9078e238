#pragma once

namespace tenfold::os {

/// Prevents the process from forking while an instance exists on any thread: fork() waits for its
/// destruction, and the constructor waits while another thread forks. The reason is that a child
/// must not inherit a lock, or a half-changed object, of a thread that does not exist in the child.
///
/// Only for short sections on the library's own threads, because an instance delays each fork() of
/// the program. A thread that has an instance must not fork, which would deadlock, nor create
/// another instance, which would deadlock while another thread forks.
class NoFork {
 public:
  NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
  ~NoFork();
};

}  // namespace tenfold::os
