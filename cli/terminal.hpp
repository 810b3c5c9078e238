#pragma once

#include <string_view>

namespace tenfold::cli {

enum class Stream { output, errors };

bool is_terminal(Stream stream) noexcept;

/// Width of the terminal at `stream`; 80 if it is unknown, 0 if the stream is not a terminal.
int columns_of(Stream stream) noexcept;

/// Opens /dev/null for standard streams that are closed, so that no file that the program opens
/// gets their descriptors and receives messages. Reading standard input and writing to the others
/// still fail.
void reserve_standard_streams() noexcept;

/// Writes to standard error. A stream that is closed or full is ignored: there is no other place to
/// report it, and the exit status shows the failure.
void write_error(std::string_view text) noexcept;

}  // namespace tenfold::cli
