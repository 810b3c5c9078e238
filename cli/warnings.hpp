#pragma once

#include <tenfold/warnings.hpp>

namespace tenfold::cli {

/// Collects warnings of the library during its lifetime. The destructor prints them to standard
/// error, after the progress bar was erased.
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
