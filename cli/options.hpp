#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>

namespace tenfold::cli {

/// Returns a validator that accepts decimal integers in [least, most]. Pass it to transform(),
/// because the validator also removes leading zeros. Its error message contains the bounds and the
/// value found. If `most` is the greatest int64, there is no upper bound, and the message names
/// only `least`.
CLI::Validator whole_number(std::int64_t least, std::int64_t most);

/// The option --threads, which several commands have.
void add_threads(CLI::App& command, int& num_threads);

}  // namespace tenfold::cli
