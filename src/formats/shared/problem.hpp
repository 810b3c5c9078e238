#pragma once

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>

#include "base/fail.hpp"

namespace tenfold::detail::formats {

/// An error as a problem of a report. `where` is used for the path and the part that it lacks.
Problem problem_of(const Error& error, const base::Where& where = {});

/// The Error(corrupt) that names the first problem of a report, and how many more there are.
Error error_of(const VerifyReport& report);

}  // namespace tenfold::detail::formats
