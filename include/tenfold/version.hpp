#pragma once

#include <string_view>

#include <tenfold/export.hpp>

/// The version of these headers, for the preprocessor. The build reads its version from here.
#define TENFOLD_VERSION_MAJOR 0
#define TENFOLD_VERSION_MINOR 1
#define TENFOLD_VERSION_PATCH 0
#define TENFOLD_VERSION_STRING "0.1.0"
/// 10000 * major + 100 * minor + patch: `#if TENFOLD_VERSION_NUMBER >= 200`.
#define TENFOLD_VERSION_NUMBER \
  (TENFOLD_VERSION_MAJOR * 10000 + TENFOLD_VERSION_MINOR * 100 + TENFOLD_VERSION_PATCH)

namespace tenfold {

/// The version of the library that was linked: "0.1.0".
TENFOLD_API std::string_view version() noexcept;

}  // namespace tenfold
