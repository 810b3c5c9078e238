#pragma once

#include <string>

#include <tenfold/export.hpp>

namespace tenfold {

/// Receives the library's warnings: what was ignored, or done in another way than asked. Called on
/// the thread that warns, which may be any.
using WarningHandler = void (*)(const std::string& message);

/// Installs `handler` and returns the previous one. Null, the default, drops warnings.
/// Thread safety: may be called from any thread.
TENFOLD_API WarningHandler set_warning_handler(WarningHandler handler) noexcept;

}  // namespace tenfold
