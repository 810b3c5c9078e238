#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <tenfold/dataset.hpp>

#include "base/access.hpp"
#include "dataset/loader/buffer_pool.hpp"
#include "dataset/row_order.hpp"
#include "dataset/table.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold {

/// One of the tables that a data set shows, and where its rows stand among those of all.
struct DatasetPart {
  std::shared_ptr<const Table> table;
  std::int64_t first_row = 0;
  std::vector<const StoredColumn*> columns;  ///< one for each column of the state's schema
};

namespace detail {

/// What a Dataset is a handle of.
struct DatasetState {
  std::vector<DatasetPart> parts;
  Schema schema;
  RowOrderPtr order;  ///< position -> row among those of all parts
  BufferPool pool;
  std::optional<os::FileIdentity> origin;  ///< what was opened, if it was one path
};

}  // namespace detail

using detail::DatasetState;

inline std::shared_ptr<const DatasetState> state_of(const Dataset& dataset) {
  return detail::Access::state(dataset);
}

inline Dataset dataset_of(std::shared_ptr<const DatasetState> state) {
  return detail::Access::make<Dataset>(std::move(state));
}

/// A state of the rows of one tree, all of them in their order.
std::shared_ptr<const DatasetState> state_of(TensorDict tree,
                                             const std::optional<os::FileIdentity>& origin = {});

/// Copies rows (of all parts, numbered through) into a batch. Throws Error(corrupt) where the ends
/// of rows of unequal length make no sense.
Batch gather(const DatasetState& state, std::span<const std::int64_t> rows,
             const BatchOptions& options);

}  // namespace tenfold
