#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <thread>

namespace tenfold::python {

/// Calls `work`, which acquires the GIL or runs Python code. `work` must not throw. If a daemon
/// thread waits for the GIL while the interpreter exits, Python before 3.14 calls pthread_exit() in
/// that thread. This unwinds the stack like an exception, so a noexcept function would terminate
/// the process. Instead, the thread stops here until the process ends, as with Python 3.14.
template <class Work>
void stop_at_exit(const Work& work) noexcept {
  try {
    work();
  } catch (...) {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

/// Like nb::gil_scoped_release, but safe while the interpreter exits; see stop_at_exit().
class GilRelease {
 public:
  GilRelease() noexcept : state_(PyEval_SaveThread()) {}
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  ~GilRelease() {
    stop_at_exit([this] { PyEval_RestoreThread(state_); });
  }

 private:
  PyThreadState* state_;
};

/// Like nb::gil_scoped_acquire, but safe while the interpreter exits; see stop_at_exit().
class GilAcquire {
 public:
  GilAcquire() noexcept {
    stop_at_exit([this] { state_ = PyGILState_Ensure(); });
  }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;
  ~GilAcquire() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_{};
};

}  // namespace tenfold::python
