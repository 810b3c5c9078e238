#pragma once

#include <string_view>

namespace tenfold::cli {

enum class Stream { output, errors };

bool is_terminal(Stream stream) noexcept;

/// Width of the terminal at `stream`; 80 if it is unknown, 0 if the stream is not a terminal.
int columns_of(Stream stream) noexcept;

/// Opens /dev/null for the standard streams that are closed. Otherwise a file that the program
/// opens could get one of their descriptors, and messages would be written to that file. Reading
/// standard input and writing to the other two streams still fail.
void reserve_standard_streams() noexcept;

/// Writes to standard error. Ignores errors, for example if the stream is closed or the disk is
/// full: there is nowhere else to report them, and the exit status shows the failure.
void write_error(std::string_view text) noexcept;

}  // namespace tenfold::cli
