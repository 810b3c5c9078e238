#pragma once

#include <cstdint>
#include <string>

namespace tenfold {

/// The result of parsing one row of text.
enum class Outcome : std::uint8_t {
  kept,
  promote,    ///< the RowPlan is too narrow: a column needs another type, or is missing
  mismatch,   ///< a value does not fit its column; another plan would not help, or none is tried
  malformed,  ///< not a valid record of the format
};

/// A value that cannot be stored.
struct BadValue {
  std::string column{};   ///< name of its column; empty for the whole row
  std::string what{};     ///< such as "expected ..., found ..."
  std::int64_t row = -1;  ///< index of its row in the chunk or source; -1: the row being added
};

/// Why a row of text was rejected.
struct RowFault : BadValue {
  Outcome outcome = Outcome::kept;
};

}  // namespace tenfold
