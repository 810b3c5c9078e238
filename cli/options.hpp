#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>

namespace tenfold::cli {

/// Returns a validator that accepts decimal integers in [least, most]. Pass it to transform(),
/// because the validator also removes leading zeros. Its error message contains the bounds and the
/// value found. The greatest int64 as `most` means that there is no upper bound.
CLI::Validator whole_number(std::int64_t least, std::int64_t most);

/// The option --threads, which several commands have.
void add_threads(CLI::App& command, int& num_threads);

}  // namespace tenfold::cli
