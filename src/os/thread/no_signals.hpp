#pragma once

#include <pthread.h>
#include <signal.h>

namespace tenfold::os {

/// Blocks all signals in this thread during the lifetime of the object. A thread that this thread
/// starts then inherits the mask, so that the program's own threads handle signals.
class NoSignals {
 public:
  NoSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace tenfold::os
