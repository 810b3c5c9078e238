#pragma once

#include <cstdint>
#include <span>

#include "dataset/dataset_state.hpp"

namespace tenfold {

/// As gather(), for a data set whose parts are not all open. Opens the parts that the rows need, at
/// most ClosedTables::kMaxOpen at a time.
Batch gather_closed(const DatasetState& state, std::span<const std::int64_t> rows,
                    const BatchOptions& options);

}  // namespace tenfold
