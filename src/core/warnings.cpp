#include <atomic>
#include <cstdio>
#include <string>

#include <tenfold/warnings.hpp>

#include "core/notes/notes.hpp"

namespace tenfold {
namespace {

/// Writes the whole line in one call, so that the lines of several threads do not mix.
void write_to_stderr(const std::string& message) {
  std::fputs(("tenfold: warning: " + message + '\n').c_str(), stderr);
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
