#pragma once

#include <string_view>

#include <tenfold/scan.hpp>

namespace tenfold {

/// The risk of unpickling the global `module`.`name`. Safe if the global is one of those known to
/// make only tensors and plain values; dangerous if it runs code, opens files or gives access to
/// functions that do; otherwise suspicious. A module in the list of dangerous ones stands for
/// everything in and below it that is not safe. Built-ins and globals of numpy that are not safe
/// are dangerous, and so are other names with a dot or a leading "__" that are not safe.
ScanRisk risk_of_global(std::string_view module, std::string_view name);

}  // namespace tenfold
