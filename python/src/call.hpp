#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "common.hpp"

namespace tenfold::python {

/// Tells a long call of the engine about Ctrl-C and Python about its progress. The GIL is taken
/// only while it is asked or told.
class PythonMonitor : public Monitor {
 public:
  /// `progress`: called with (done_bytes, total_bytes, what); or None.
  explicit PythonMonitor(nb::object progress) : progress_(std::move(progress)) {}

  void report(std::uint64_t done_bytes, std::uint64_t total_bytes, std::string_view what) override;
  bool stop() override;

  /// Throws what Python raised while the call ran. Needs the GIL.
  void rethrow();

 private:
  nb::object progress_;
  std::optional<nb::python_error> raised_;
};

/// Python's collector of garbage waits. It looks at all young objects each time 700 of them were
/// made, which was a quarter of the time of 10,000 tensors; and none of what is made here is
/// garbage. Needs the GIL at both ends.
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

/// Emits, as UserWarnings, what the engine has warned of since the last time. Needs the GIL.
void emit_warnings();
/// From now on the engine's warnings wait for emit_warnings().
void collect_warnings();

/// Runs `work` without the GIL, then emits warnings.
template <class Work>
auto without_gil(const Work& work) {
  if constexpr (std::is_void_v<decltype(work())>) {
    {
      const nb::gil_scoped_release released;
      work();
    }
    emit_warnings();
  } else {
    auto result = [&] {
      const nb::gil_scoped_release released;
      return work();
    }();
    emit_warnings();
    return result;
  }
}

/// The same for work that takes a Monitor*. An exception that Python raised meanwhile (a signal
/// handler, the progress callable) wins over the engine's own, and over the result of work that was
/// done before it was told to stop.
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
