#pragma once

#include <cstdint>
#include <span>

#include "dataset/dataset_state.hpp"

namespace tenfold {

/// Implements gather() for a data set whose parts are not all open. Opens the parts that contain
/// the rows, at most ClosedTables::kMaxOpen parts at a time.
Batch gather_closed(const DatasetState& state, std::span<const std::int64_t> rows,
                    const BatchOptions& options);

}  // namespace tenfold
