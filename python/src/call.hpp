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
/// handler, the progress callable) wins over the engine's own.
template <class Work>
auto monitored(nb::object progress, const Work& work) {
  PythonMonitor monitor(std::move(progress));
  try {
    return without_gil([&] { return work(&monitor); });
  } catch (const Error&) {
    monitor.rethrow();
    throw;
  }
}

}  // namespace tenfold::python
