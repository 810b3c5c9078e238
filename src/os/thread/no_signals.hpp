#pragma once

#include <pthread.h>
#include <signal.h>

namespace tenfold::os {

/// Blocks all signals except those of faults in this thread during the lifetime of the object. A
/// thread that this thread starts inherits the mask, so the program's own threads handle signals.
/// If the signal of a fault were blocked, the kernel would end the process without calling its
/// handler, such as Python's faulthandler.
class NoSignals {
 public:
  NoSignals() noexcept {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGBUS, SIGFPE, SIGILL, SIGSEGV}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace tenfold::os
