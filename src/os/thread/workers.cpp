#include "os/thread/workers.hpp"

#include <pthread.h>

#include <thread>
#include <vector>

#include "os/process.hpp"
#include "os/thread/no_signals.hpp"

namespace tenfold::os {

struct Workers::Threads {
  OwnProcess process;
  std::vector<std::thread> threads;
};

Workers::Workers(int count, const std::function<void()>& work)
    : threads_(std::make_unique<Threads>()) {
  const NoSignals no_signals;
  try {
    for (int i = 0; i < count; ++i) {
      threads_->threads.emplace_back(work);
      ::pthread_setname_np(threads_->threads.back().native_handle(), "tenfold-worker");
    }
  } catch (...) {
    // Continue with the threads that were started: less concurrency is no reason to fail.
  }
}

bool Workers::is_here() const noexcept { return threads_->process.is_here(); }

Workers::~Workers() {
  if (!is_here()) {
    // In a forked child the threads do not exist, so their handles cannot be joined.
    static_cast<void>(threads_.release());
    return;
  }
  for (std::thread& thread : threads_->threads) thread.join();
}

}  // namespace tenfold::os
