#pragma once

#include <string_view>

#include <tenfold/scan.hpp>

namespace tenfold {

/// The risk of unpickling the global `module`.`name`: safe if it is known to make plain values
/// only, dangerous if it runs code, opens files or leads to something that does, else suspicious.
/// The name of a module stands for everything in and below it.
ScanRisk risk_of_global(std::string_view module, std::string_view name);

}  // namespace tenfold
