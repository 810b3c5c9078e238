#pragma once

#include <cstdint>
#include <string>

namespace tenfold {

/// The result of parsing one row of text.
enum class Outcome : std::uint8_t {
  kept,
  promote,    ///< the plan is too narrow: a column needs another type, or is missing
  mismatch,   ///< a value does not fit its column; another plan would not help, or none is tried
  malformed,  ///< not a valid record of the format
};

/// Why a row was rejected.
struct RowFault {
  Outcome outcome = Outcome::kept;
  std::string column;   ///< name of the column; empty for the whole row
  std::string message;  ///< such as "expected ..., found ..."
};

}  // namespace tenfold
