#pragma once

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>

#include "base/fail.hpp"

namespace tenfold::detail::formats {

/// Converts an error to a problem of a report. `where` supplies a path or part that it lacks.
Problem problem_of(const Error& error, const base::Where& where = {});

/// Returns an Error(corrupt) with the first problem of a report and the number of further ones. The
/// report must have a problem.
Error error_of(const VerifyReport& report);

}  // namespace tenfold::detail::formats
