#pragma once

#include <cstdint>
#include <string>

namespace tenfold {

/// What became of one row of text.
enum class Outcome : std::uint8_t {
  kept,
  promote,    ///< the plan is too narrow: the column must be of another type, or there must be one
  misfit,     ///< a value that no column of this plan can take
  malformed,  ///< no row of the format at all
};

/// Why a row was not kept.
struct RowFault {
  Outcome outcome = Outcome::kept;
  std::string column;   ///< its name; empty if it is the whole row
  std::string message;  ///< "expected ..., found ..."
};

}  // namespace tenfold
