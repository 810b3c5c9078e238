#pragma once

#include <string>

#include <tenfold/export.hpp>

namespace tenfold {

/// A function that receives each warning of the library, for example about ignored input or a
/// skipped checkpoint. Any thread may call it. It should not throw: the call that warns, such as
/// CheckpointManager::save(), then fails with that exception.
using WarningHandler = void (*)(const std::string& message);

/// Installs `handler` and returns the previous one. The default writes to stderr; null drops
/// warnings. Thread safety: may be called from any thread.
///
///     tenfold::set_warning_handler([](const std::string& message) { log(message); });
TENFOLD_API WarningHandler set_warning_handler(WarningHandler handler) noexcept;

}  // namespace tenfold
