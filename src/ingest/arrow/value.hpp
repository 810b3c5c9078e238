#pragma once

#include <cstdint>

#include <tenfold/value.hpp>

#include "ingest/arrow/array.hpp"

namespace tenfold {

/// Value `i` as JSON knows it: lists, structs and maps as such, a map with keys that are no text as
/// a list of pairs, decimals as text, bytes as base64, dates and times as their counts.
Value arrow_value(const ArrowSlice& slice, std::int64_t i);

}  // namespace tenfold
