#include "warnings.hpp"

#include <mutex>
#include <string>
#include <vector>

#include "terminal.hpp"
#include "text.hpp"

namespace tenfold::cli {
namespace {

struct KeptWarnings {
  std::mutex mutex;  ///< any thread may warn
  std::vector<std::string> messages;
};

KeptWarnings& kept() {
  static KeptWarnings warnings;
  return warnings;
}

void keep(const std::string& message) {
  const std::lock_guard lock(kept().mutex);
  kept().messages.push_back(message);
}

}  // namespace

WarningGuard::WarningGuard() : previous_(set_warning_handler(keep)) {}

WarningGuard::~WarningGuard() {
  set_warning_handler(previous_);
  const std::lock_guard lock(kept().mutex);
  for (const std::string& message : kept().messages) {
    write_error("tenfold: warning: " + printable(message) + "\n");
  }
  kept().messages.clear();
}

}  // namespace tenfold::cli
