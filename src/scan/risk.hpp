#pragma once

#include <string_view>

#include <tenfold/scan.hpp>

namespace tenfold {

/// The risk of unpickling the global `module`.`name`. Safe if the global is one of those known to
/// make only tensors and plain values; dangerous if it runs code, opens files or gives access to
/// functions that do; otherwise suspicious. A module in the list of dangerous ones stands for
/// everything in and below it that is not safe. All other built-ins and globals of numpy are
/// dangerous, and so are names with a dot or a leading "__".
ScanRisk risk_of_global(std::string_view module, std::string_view name);

}  // namespace tenfold
