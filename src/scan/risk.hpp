#pragma once

#include <string_view>

#include <tenfold/scan.hpp>

namespace tenfold {

/// The risk of unpickling the global `module`.`name`. Safe if the global is in the list of those
/// that make plain values only; dangerous if it runs code, opens files or gives access to functions
/// that do; otherwise suspicious. An entry for a module covers everything in and below the module.
ScanRisk risk_of_global(std::string_view module, std::string_view name);

}  // namespace tenfold
