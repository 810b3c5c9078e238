#pragma once

#include <string_view>

#include <tenfold/cxx20.hpp>

namespace tenfold {

/// "0.1.0": the version of the library that was linked.
std::string_view version() noexcept;

}  // namespace tenfold
