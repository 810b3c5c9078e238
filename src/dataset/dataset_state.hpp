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

/// Identifies a column of a table.
struct PartColumn {
  std::size_t index = 0;     ///< index in the table's schema
  bool is_validity = false;  ///< true: the bool validity of that column, not its values

  bool operator==(const PartColumn&) const = default;
};

/// Tables on disk that are opened when their rows are needed. Thread-safe.
class ClosedTables {
 public:
  /// Maximum number of tables that one object of this class keeps open at a time, and that one call
  /// of gather() opens at a time.
  static constexpr std::size_t kMaxOpen = 1024;

  virtual ~ClosedTables() = default;
  /// Returns the table with this number, and opens it if it is not open.
  virtual std::shared_ptr<const Table> open(std::size_t number) = 0;
};

/// One of the tables of a data set, and the position of its rows among all rows.
class DatasetPart {
 public:
  using Columns = std::shared_ptr<const std::vector<PartColumn>>;

  DatasetPart() = default;
  /// All columns of a table that stays open.
  DatasetPart(std::shared_ptr<const Table> open_table, std::int64_t first);
  /// The columns `chosen` of a table that is opened when its rows are needed.
  DatasetPart(std::shared_ptr<ClosedTables> tables, std::size_t number, std::int64_t num_rows,
              std::int64_t first, Columns chosen);

  bool is_open() const noexcept { return table != nullptr; }
  std::int64_t num_rows() const noexcept { return num_rows_; }
  const Columns& chosen() const noexcept { return chosen_; }
  /// Selects columns of the table.
  void choose(Columns chosen);
  /// The same part with its table open.
  DatasetPart opened() const;
  /// Returns true if both parts select the same columns of the same table.
  bool is_same(const DatasetPart& other) const noexcept;

  std::shared_ptr<const Table> table;  ///< null if the table is not open
  std::int64_t first_row = 0;
  std::vector<const StoredColumn*> columns;  ///< the selected columns; empty if the table is closed

 private:
  std::shared_ptr<ClosedTables> closed_;
  std::size_t number_ = 0;
  std::int64_t num_rows_ = 0;
  Columns chosen_;
};

/// Replaces the selected columns of each part by choose(part.chosen()).
template <class Choose>
void choose_columns(std::vector<DatasetPart>& parts, const Choose& choose) {
  // Consecutive parts often share one list of columns, for which `choose` is called only once.
  DatasetPart::Columns before;
  DatasetPart::Columns chosen;
  for (DatasetPart& part : parts) {
    if (part.chosen() != before) {
      before = part.chosen();
      chosen = std::make_shared<const std::vector<PartColumn>>(choose(*before));
    }
    part.choose(chosen);
  }
}

namespace detail {

/// The state behind a Dataset, which is a handle.
struct DatasetState {
  std::vector<DatasetPart> parts;
  bool all_open = true;
  TensorDict tree;  ///< the tree that was opened; for joined data sets, the first one
  Schema schema;
  RowOrderPtr order;  ///< maps positions to row numbers over all parts
  BufferPool pool;
  std::optional<os::FileIdentity> origin;  ///< nullopt unless all rows are from one opened path
};

}  // namespace detail

using detail::DatasetState;

inline std::shared_ptr<const DatasetState> state_of(const Dataset& dataset) {
  return detail::Access::state(dataset);
}

inline Dataset dataset_of(std::shared_ptr<const DatasetState> state) {
  return detail::Access::make<Dataset>(std::move(state));
}

/// Returns the state of a data set with the rows of a tree in stored order. Omits the busy slots of
/// a circular buffer (RingGuard::order()). `in_place` is passed to Table.
std::shared_ptr<const DatasetState> state_of(TensorDict tree,
                                             const std::optional<os::FileIdentity>& origin = {},
                                             std::shared_ptr<InPlaceWrites> in_place = nullptr);

/// Returns the state with all parts open, or `state` itself if it has more than
/// ClosedTables::kMaxOpen parts.
std::shared_ptr<const DatasetState> with_open_parts(std::shared_ptr<const DatasetState> state);

/// Copies rows into a batch. `rows`: row numbers over all parts. Throws Error(corrupt) for invalid
/// end offsets, and Error(invalid_argument) for a padding value that the column's dtype cannot
/// represent. The caller has called refuse_length_names(). Also throws the errors of
/// RingWait::wait() and RingWatch::torn() if a part is a circular buffer, and those of
/// PartsFolder::open(number) if a part is not open.
Batch gather(const DatasetState& state, std::span<const std::int64_t> rows,
             const BatchOptions& options);

}  // namespace tenfold
