#pragma once

#include <tenfold/warnings.hpp>

namespace tenfold::cli {

/// While a guard exists, it collects the warnings of the library. Its destructor prints them to
/// standard error. Destroy the progress bar first, so that it does not mix with the warnings.
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
