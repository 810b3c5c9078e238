#pragma once

#include <string_view>

namespace tenfold::cli {

enum class Stream { output, errors };

bool is_terminal(Stream stream) noexcept;

/// Columns of the terminal that `stream` is; 80 if it does not tell, 0 if it is no terminal.
int columns_of(Stream stream) noexcept;

/// Opens /dev/null in place of standard streams that are closed, so that no file the program opens
/// gets their descriptors and receives messages. Writing to them fails, as it does when closed.
void reserve_standard_streams() noexcept;

/// Writes to standard error. A stream that is closed or full is ignored: there is no other place
/// to report it, and the exit status tells the failure.
void write_error(std::string_view text) noexcept;

}  // namespace tenfold::cli
