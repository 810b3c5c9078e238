#pragma once

#include <cstdint>
#include <span>

#include "dataset/dataset_state.hpp"

namespace tenfold {

/// gather() from a data set of which not all parts are open: opens the parts that the rows need,
/// ClosedTables::kMaxOpen at a time.
Batch gather_closed(const DatasetState& state, std::span<const std::int64_t> rows,
                    const BatchOptions& options);

}  // namespace tenfold
