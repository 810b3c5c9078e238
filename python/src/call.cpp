#include "call.hpp"

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include <tenfold/warnings.hpp>

#include "core/notes/notes.hpp"
#include "gil.hpp"

namespace tenfold::python {
namespace {

/// Warnings may be added by any thread, without the GIL.
struct Warnings {
  std::mutex mutex;
  std::vector<std::string> messages;
  std::atomic<bool> any{false};
};

Warnings& warnings() {
  static Warnings collected;
  return collected;
}

/// Returns the stack level of the innermost frame outside of the package, so that a warning names a
/// line of the user's program. Level 1 is the frame that called the engine.
int level_of_caller() {
  int level = 1;
  nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame.is_valid() && !frame.is_none()) {
    const nb::object module = frame.attr("f_globals").attr("get")("__name__", "");
    const std::string name = nb::cast<std::string>(nb::str(module));
    if (name != "tenfold" && !name.starts_with("tenfold.")) break;
    frame = frame.attr("f_back");
    ++level;
  }
  return level;
}

void collect(const std::string& message) {
  Warnings& collected = warnings();
  const std::lock_guard lock(collected.mutex);
  collected.messages.push_back(message);
  collected.any = true;
}

}  // namespace

void collect_warnings() { set_warning_handler(collect); }

void emit_warnings() {
  Warnings& collected = warnings();
  if (!collected.any.exchange(false)) return;
  std::vector<std::string> messages;
  {
    const std::lock_guard lock(collected.mutex);
    messages.swap(collected.messages);
  }
  const int level = level_of_caller();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const nb::str shown = text(messages[i]);  // may have surrogates, which UTF-8 cannot encode
    if (PyErr_WarnFormat(PyExc_UserWarning, level, "%U", shown.ptr()) == 0) continue;
    while (++i < messages.size()) collect(messages[i]);  // kept for the next call
    throw nb::python_error();
  }
}

void PythonMonitor::report(std::uint64_t done_bytes, std::uint64_t total_bytes,
                           std::string_view what) {
  const GilAcquire gil;
  if (raised_ || progress_.is_none()) return;
  try {
    const nb::tuple arguments = nb::make_tuple(done_bytes, total_bytes, text(what));
    PyObject* answer = nullptr;
    stop_at_exit([&] { answer = PyObject_Call(progress_.ptr(), arguments.ptr(), nullptr); });
    if (answer == nullptr) throw nb::python_error();
    Py_DECREF(answer);
  } catch (nb::python_error& error) {
    raised_.emplace(std::move(error));
  }
}

bool PythonMonitor::stop() {
  const GilAcquire gil;
  if (!raised_ && PyErr_CheckSignals() != 0) raised_.emplace();
  return raised_.has_value();
}

void PythonMonitor::rethrow() {
  if (!raised_) return;
  nb::python_error error = std::move(*raised_);
  raised_.reset();
  throw error;
}

}  // namespace tenfold::python
