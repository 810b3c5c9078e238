#pragma once

#include <functional>
#include <memory>

namespace tenfold::os {

/// Threads that an object keeps for its own work, as long as it lives: those of a loop that waits.
///
/// In the child of a fork there are no such threads: is_here() is false there, and the destructor
/// waits for nobody.
class Workers {
 public:
  /// Calls `work` once on each of `count` threads.
  Workers(int count, const std::function<void()>& work);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// Waits until every `work` has returned: whoever destroys this has told them to.
  ~Workers();

  /// True in the process that made it.
  bool is_here() const noexcept;

 private:
  struct Threads;
  std::unique_ptr<Threads> threads_;
};

}  // namespace tenfold::os
