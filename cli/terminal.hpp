#pragma once

namespace tenfold::cli {

enum class Stream { output, errors };

bool is_terminal(Stream stream) noexcept;

/// Columns of the terminal that `stream` is; 80 if it does not tell, 0 if it is no terminal.
int columns_of(Stream stream) noexcept;

}  // namespace tenfold::cli
