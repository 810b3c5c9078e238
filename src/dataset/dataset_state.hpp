#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <tenfold/dataset.hpp>

#include "dataset/loader/buffer_pool.hpp"
#include "dataset/row_order.hpp"
#include "dataset/table.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold {

/// One of the tables of a data set, and the position of its rows among those of all tables.
struct DatasetPart {
  std::shared_ptr<const Table> table;
  std::int64_t first_row = 0;
  std::vector<const StoredColumn*> columns;  ///< one for each column of the state's schema
};

/// The shared state behind Dataset handles.
struct DatasetState {
  std::vector<DatasetPart> parts;
  Schema schema;
  RowOrderPtr order;  ///< position -> row number in all parts
  BufferPool pool;
  std::optional<os::FileIdentity> origin;  ///< identity of the opened path, if there is exactly one
};

/// A state with all rows of one tree, in order.
std::shared_ptr<const DatasetState> state_of(TensorDict tree,
                                             const std::optional<os::FileIdentity>& origin = {});

/// Copies rows (numbered across all parts) to a batch. Throws Error(corrupt) for invalid end
/// offsets of ragged rows.
Batch gather(const DatasetState& state, std::span<const std::int64_t> rows,
             const BatchOptions& options);

}  // namespace tenfold
