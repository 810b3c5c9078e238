#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "common.hpp"
#include "gil.hpp"

namespace tenfold::python {

/// Reports progress of a long call to Python, and cancels the call if a signal handler (Ctrl-C) or
/// the progress callable raises. Holds the GIL only during report() and stop().
class PythonMonitor : public Monitor {
 public:
  /// `progress`: called with (done_bytes, total_bytes, what); or None.
  explicit PythonMonitor(nb::object progress) : progress_(std::move(progress)) {}

  void report(std::uint64_t done_bytes, std::uint64_t total_bytes, std::string_view what) override;
  bool stop() override;

  /// Rethrows an exception that Python raised during the call. Requires the GIL.
  void rethrow();

 private:
  nb::object progress_;
  std::optional<nb::python_error> raised_;
};

/// Pauses Python's garbage collector, which otherwise traverses young objects each time that some
/// 700 objects were created (Python 3.12). That took a quarter of the time of creating 10,000
/// tensors, and none of the objects created during a pause is garbage. Requires the GIL for
/// construction and destruction.
class GarbagePause {
 public:
  GarbagePause() : was_enabled_(PyGC_Disable() != 0) {}
  GarbagePause(const GarbagePause&) = delete;
  GarbagePause& operator=(const GarbagePause&) = delete;
  ~GarbagePause() {
    if (was_enabled_) PyGC_Enable();
  }

 private:
  bool was_enabled_;
};

/// Emits the engine's warnings since the last call as UserWarnings, which name the line that called
/// the package. Requires the GIL.
void emit_warnings();
/// Collects the engine's warnings from now on, for emit_warnings().
void collect_warnings();

/// Runs `work` without the GIL, then emits warnings. If `work` throws, its warnings are emitted
/// after a later call.
template <class Work>
auto without_gil(const Work& work) {
  if constexpr (std::is_void_v<decltype(work())>) {
    {
      const GilRelease released;
      work();
    }
    emit_warnings();
  } else {
    auto result = [&] {
      const GilRelease released;
      return work();
    }();
    emit_warnings();
    return result;
  }
}

/// Runs `construct`, which constructs `*self` for an __init__, without the GIL, then emits
/// warnings. If emitting raises because warnings are errors, destroys the object: nanobind does not
/// destroy it when __init__ raises.
template <class T, class Construct>
void construct_without_gil(T* self, const Construct& construct) {
  {
    const GilRelease released;
    construct();
  }
  try {
    emit_warnings();
  } catch (...) {
    std::destroy_at(self);
    throw;
  }
}

/// Like without_gil(), for work that takes a Monitor*. If Python raised an exception during the
/// call (a signal handler or the progress callable), rethrows that exception. It takes precedence
/// over an error of the engine, and over the result if the work finished before it was cancelled.
template <class Work>
auto monitored(nb::object progress, const Work& work) {
  PythonMonitor monitor(std::move(progress));
  try {
    if constexpr (std::is_void_v<decltype(work(nullptr))>) {
      without_gil([&] { work(&monitor); });
      monitor.rethrow();
    } else {
      auto result = without_gil([&] { return work(&monitor); });
      monitor.rethrow();
      return result;
    }
  } catch (const Error&) {
    monitor.rethrow();
    throw;
  }
}

}  // namespace tenfold::python
