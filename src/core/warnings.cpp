#include <unistd.h>

#include <atomic>
#include <string>

#include <tenfold/warnings.hpp>

#include "core/notes/notes.hpp"

namespace tenfold {
namespace {

/// In one call, without a lock that a fork could leave held. Nobody can be told if it fails.
void write_to_stderr(const std::string& message) {
  const std::string line = "tenfold: warning: " + message + '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

std::atomic<WarningHandler> current_handler = write_to_stderr;

}  // namespace

WarningHandler set_warning_handler(WarningHandler handler) noexcept {
  return current_handler.exchange(handler);
}

void warn(const std::string& message) {
  if (const WarningHandler handler = current_handler.load()) handler(message);
}

}  // namespace tenfold
