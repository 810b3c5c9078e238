#pragma once

#include <tenfold/warnings.hpp>

namespace tenfold::cli {

/// While it lives, warnings of the library are kept; its end prints them on standard error, where
/// by then no progress bar is drawn.
class WarningGuard {
 public:
  WarningGuard();
  WarningGuard(const WarningGuard&) = delete;
  WarningGuard& operator=(const WarningGuard&) = delete;
  ~WarningGuard();

 private:
  WarningHandler previous_;
};

}  // namespace tenfold::cli
