#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tenfold/value.hpp>

#include "ingest/arrow/array.hpp"

namespace tenfold {

/// Converts value `i` to a JSON value: structs and maps become objects, decimals become strings,
/// binary becomes base64, dates and times become integers (counts of their unit). A map whose
/// converted keys are not unique strings becomes a list of pairs.
///
/// Converts text that is not UTF-8 by shown_text(). `other_bytes`: if not null, is set to the
/// original bytes of the first such text.
Value arrow_value(const ArrowSlice& slice, std::int64_t i,
                  std::optional<std::string>* other_bytes = nullptr);

}  // namespace tenfold
