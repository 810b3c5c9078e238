#pragma once

namespace tenfold::cli {

/// The `tenfold` program: parses, runs one command, prints. Returns the exit status: 0 success, 1 a
/// difference or problem was found, 2 usage error or failure, 130 interrupted, 141 the reader of
/// standard output closed the pipe. Never throws.
int run(int argc, char** argv);

}  // namespace tenfold::cli
