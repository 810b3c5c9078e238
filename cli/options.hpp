#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>

namespace tenfold::cli {

/// A check for options: a whole number in [least, most]. Its message names both and what was found.
CLI::Validator whole_number(std::int64_t least, std::int64_t most);

/// The option --threads, which several commands have.
void add_threads(CLI::App& command, int& num_threads);

}  // namespace tenfold::cli
