#pragma once

#include <string_view>

#include <tenfold/scan.hpp>

namespace tenfold {

/// What unpickling may do that finds the global `module`.`name`.
ScanRisk risk_of_global(std::string_view module, std::string_view name);

}  // namespace tenfold
