#pragma once

#include <cstdint>

#include <tenfold/value.hpp>

#include "ingest/arrow/array.hpp"

namespace tenfold {

/// Converts value `i` to a JSON value: structs and maps become objects, a map whose keys are not
/// unique strings becomes a list of pairs, decimals become strings, binary becomes base64, dates
/// and times become their counts.
Value arrow_value(const ArrowSlice& slice, std::int64_t i);

}  // namespace tenfold
