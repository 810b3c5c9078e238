#pragma once

#include <functional>
#include <memory>

namespace tenfold::os {

/// Threads that an object owns. Each of them runs one loop, which waits for work until the owner
/// signals it to stop.
///
/// A forked child has no such threads: is_here() is false there, and the destructor does not wait.
class Workers {
 public:
  /// Calls `work` once on each of `count` threads, or of fewer if the system starts no more.
  Workers(int count, const std::function<void()>& work);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// Waits until every `work` has returned. The owner must signal the threads to stop first.
  ~Workers();

  /// True in the process that created this object, false in a forked child.
  bool is_here() const noexcept;

 private:
  struct Threads;
  std::unique_ptr<Threads> threads_;
};

}  // namespace tenfold::os
