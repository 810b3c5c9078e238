#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/batch.hpp>
#include <tenfold/io.hpp>
#include <tenfold/schema.hpp>

namespace tenfold {

struct DatasetState;
class Growth;

/// How rows become a batch.
struct BatchOptions {
  /// Ragged columns to be padded, by dotted name.
  std::map<std::string, PadValue, std::less<>> pad{};
  std::optional<PadValue> pad_all{};  ///< every ragged column of numbers
  int num_threads = 1;
};

/// The rows of a tree whose tensors share their first dimension, on disk, in any format that open()
/// reads. Nothing is read until rows are asked for.
///
///   tenfold::Dataset ds("flights");
///   tenfold::Batch batch = ds.rows(std::array<std::int64_t, 3>{5, 2, 900'000'000});
///   batch.at("price").span<float>();
///
/// A Dataset is a handle; views (range, select, take, ...) copy no row and compose.
///
/// Opened with Mode::write_through, rows can be added and changed, while others read:
///
///   tenfold::Dataset ds = tenfold::create("buffer", schema, {.capacity = 1'000'000});
///   ds.append(batch);   // whoever opens or refreshes it now sees these rows, whole
///   ds.flush();         // and after a power loss too
///
/// Thread safety: all const members may be called from any thread, also while one thread appends.
class TENFOLD_API Dataset {
 public:
  /// Throws what open() throws, Error(invalid_argument) if it is no table, Error(corrupt) if its
  /// parts contradict each other.
  explicit Dataset(const Path& path, Mode mode = Mode::read);
  explicit Dataset(TensorDict tree);

  std::int64_t size() const;
  const Schema& schema() const noexcept TENFOLD_LIFETIMEBOUND;

  /// The rows at these positions, as often and in the order as named.
  /// Throws Error(invalid_argument) for a position outside [0, size()).
  Batch rows(std::span<const std::int64_t> positions, const BatchOptions& options = {}) const;
  /// The rows [begin, end).
  Batch rows(std::int64_t begin, std::int64_t end, const BatchOptions& options = {}) const;

  /// The whole column of that (dotted) name: a view of what is mapped where the rows follow each
  /// other, else copied. Throws Error(key_not_found), and Error(invalid_argument) for columns whose
  /// rows are of unequal length: take those by rows().
  Tensor column(std::string_view name) const;

  /// The rows [begin, end), both clamped as a slice clamps them.
  Dataset range(std::int64_t begin, std::int64_t end) const;
  /// Some of the columns, by (dotted) names; a record's name means all it holds, and "x.valid"
  /// where a nullable column x has values, as bools. Throws Error(key_not_found).
  Dataset select(const std::vector<std::string>& names) const;
  /// The columns under other names, where they stand. Each pair is a name (of a record: all that it
  /// holds) and the new path. Throws Error(key_not_found), Error(invalid_argument) if two columns
  /// have one name then.
  Dataset rename(const std::vector<std::pair<std::string, KeyPath>>& names) const;
  /// The rows at `positions`, int64 [n], which are copied: in four bytes each where that is enough.
  /// Throws Error(invalid_argument) for a position outside [0, size()).
  Dataset take(Tensor positions) const;
  /// The rows where `mask`, bool [size()], is true.
  Dataset filter(const Tensor& mask) const;
  /// `sizes` rows each, which sum to size(): contiguous, or pieces of permutation(size(), seed).
  std::vector<Dataset> split(const std::vector<std::int64_t>& sizes,
                             std::optional<std::uint64_t> seed = {}) const;
  /// The contiguous part of `rank`; the sizes of the parts differ by one at most.
  Dataset shard(std::int64_t rank, std::int64_t world_size) const;

  /// One after the other. Throws Error(invalid_argument) naming a column that differs.
  static Dataset concat(std::span<const Dataset> parts);
  /// In turn: of every prefix, each source's part is within one row of its weight's share. Ends
  /// with the first source that is exhausted.
  static Dataset mix(std::span<const Dataset> sources, std::span<const double> weights);

  // Rows are added and changed by the handle that was opened with Mode::write_through, a folder's;
  // views, and handles opened to read, throw Error(unsupported).

  /// Adds rows behind those there are; in a ring, over the oldest ones. They are visible, all at
  /// once, to whoever opens or refreshes the data set afterwards, and survive the death of this
  /// process; a power loss only after flush(). Returns the new size(). Throws
  /// Error(invalid_argument) naming a column that does not fit, Error(io) if another process adds
  /// rows (EBUSY) or the disk is full; with nothing appended.
  std::int64_t append(const Batch& rows);
  /// The same with a tree of rows: batch_size [B], its schema that of this data set.
  std::int64_t append(const TensorDict& rows);
  /// Writes columns of some rows in place; readers may see a row half written. No checksum
  /// vouches for the data set's tensors afterwards. Throws Error(invalid_argument) for a position
  /// outside [0, size()) and for what does not fit, Error(unsupported) for rows of unequal length.
  void update(std::span<const std::int64_t> positions, const Batch& rows);
  /// Brings all rows to the device, and meta.json up to date: tensordict sees them from now on.
  void flush();
  /// flush(); afterwards another process may append. Reading goes on, appending throws.
  void close();
  /// Sees the rows that others have added since it was opened. Not for views.
  void refresh();
  /// Rows that a ring has room for; 0 if it is none.
  std::int64_t capacity() const;
  /// The slot of a ring that the next row goes to, else size().
  std::int64_t cursor() const;

  /// What it was made of when it was opened; of concat and mix the first.
  const TensorDict& tree() const noexcept TENFOLD_LIFETIMEBOUND;

  /// The rows as they are now, which stay as they are when others come.
  std::shared_ptr<const DatasetState> state() const;
  explicit Dataset(std::shared_ptr<const DatasetState> state) : state_(std::move(state)) {}

 private:
  Growth& growth(const char* what) const;

  std::shared_ptr<const DatasetState> state_;  ///< when it was opened
  std::shared_ptr<Growth> growth_;             ///< of what was opened from a path; views have none
};

struct CreateOptions {
  /// Rows of zeros to begin with, for processes that write disjoint rows in place. Their space is
  /// reserved where the file system can do that.
  std::int64_t num_rows = 0;
  /// Not 0: a ring of so many rows, empty to begin with. All columns have rows of equal size.
  std::int64_t capacity = 0;
};

/// Makes a data set of these columns on disk, durably, and opens it with Mode::write_through. Where
/// the columns are stored is chosen anew. Throws Error(io) if there is something at `path` (EEXIST)
/// or no space for `num_rows` (ENOSPC), Error(invalid_argument) for a schema without columns and
/// for options that exclude each other, Error(unsupported) for a ring of rows of unequal length.
TENFOLD_API Dataset create(const Path& path, const Schema& schema,
                           const CreateOptions& options = {});

}  // namespace tenfold
