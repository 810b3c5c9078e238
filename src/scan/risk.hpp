#pragma once

#include <string_view>

#include <tenfold/scan.hpp>

namespace tenfold {

/// The risk of unpickling the global `module`.`name`:
/// - safe: it is known to make only tensors and plain values.
/// - dangerous: it is not safe, and one of these is true: it is in or below a module that
///   runs code, opens files or gives access to functions that do; it is a built-in; it is in numpy;
///   `name` contains a dot or starts with "__".
/// - suspicious: every other global.
ScanRisk risk_of_global(std::string_view module, std::string_view name);

}  // namespace tenfold
