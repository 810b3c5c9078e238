#pragma once

namespace tenfold::cli {

/// The `tenfold` program: parses, runs one command, prints. Returns the exit status: 0 done,
/// 1 a difference or problem was found, 2 usage or failure, 130 interrupted. Never throws.
int run(int argc, char** argv);

}  // namespace tenfold::cli
