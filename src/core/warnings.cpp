#include <atomic>

#include <tenfold/warnings.hpp>

#include "core/notes/notes.hpp"

namespace tenfold {
namespace {

std::atomic<WarningHandler> current_handler = nullptr;

}  // namespace

WarningHandler set_warning_handler(WarningHandler handler) noexcept {
  return current_handler.exchange(handler);
}

void warn(const std::string& message) {
  if (const WarningHandler handler = current_handler.load()) handler(message);
}

}  // namespace tenfold
