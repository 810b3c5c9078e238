#pragma once

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>

#include "base/fail.hpp"

namespace tenfold::detail::formats {

/// True if the error is a problem of the files, such as damage, a block of the disk that cannot be
/// read (EIO) or a missing permission. False for other failed system calls: a process that has no
/// free descriptors (EMFILE) or memory must not conclude that the files are damaged or missing.
/// Also false for ECANCELED, the error of a cancelled call.
bool is_problem_of_files(const Error& error) noexcept;

/// Converts an error to a problem of a report. `where` supplies the path and the part if the error
/// has none.
Problem problem_of(const Error& error, const base::Where& where = {});

/// Adds problem_of(error, where) to a report if the error is an Error(corrupt), an
/// Error(unsupported), or an Error(io) for which is_problem_of_files() is true. Throws any other
/// error.
void add_problem(VerifyReport& report, const Error& error, const base::Where& where);

/// Adds the problems and counts of `part`, the report of a part of the checked data, to `report`,
/// but not `part.unchecked`.
void add_report(VerifyReport& report, const VerifyReport& part);

/// Returns an Error(corrupt) with the first problem of a report and the number of further problems.
/// The report must have at least one problem.
Error error_of(const VerifyReport& report);

}  // namespace tenfold::detail::formats
