#pragma once

#include <cstdint>
#include <initializer_list>
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

namespace detail {
struct Access;
struct DatasetState;
class Growth;
}  // namespace detail

/// How rows are assembled into a batch.
struct BatchOptions {
  /// Ragged columns of numbers to be padded, by dotted name, and the value that fills each. Any
  /// other name throws Error(key_not_found).
  std::map<std::string, PadValue, std::less<>> pad{};
  std::optional<PadValue> pad_all{};  ///< pads every ragged column of numbers with this value
  /// Greatest number of threads that copy rows. 0: TENFOLD_NUM_THREADS, or min(8, cores). The
  /// default is 1, the calling thread, because copying most batches takes less time than waking
  /// another thread.
  int num_threads = 1;
};

/// The rows of a tree whose tensors have the same first dimension: on disk, in any format that
/// open() reads, or in memory. Opening maps the tensors, and reads small and compressed ones. The
/// tensors of a data set of parts (see parts.hpp) are mapped when their rows are accessed.
///
///     tenfold::Dataset ds("flights");
///     tenfold::Batch batch = ds.rows({5, 2, 900'000'000});
///     batch.at("price").span<float>();
///
/// A Dataset is a handle; views (range, select, take, ...) copy no rows and can be combined.
///
/// A data set that is opened with Mode::write_through can be changed while others read it:
///
///     tenfold::Dataset ds = tenfold::create("buffer", schema, {.capacity = 1'000'000});
///     ds.append(batch);   // atomic for readers that open or refresh it afterwards
///     ds.flush();         // survives a power failure
///
/// A moved-from Dataset can only be assigned or destroyed.
///
/// Thread safety: all const members may be called from any thread, also while one thread appends.
class TENFOLD_API Dataset {
 public:
  /// Opens a path. Throws what open(), Schema::of() and Leaf::tensor() throw, and Error(io) (EBUSY)
  /// for Mode::write_through while a save replaces the path.
  explicit Dataset(const Path& path, Mode mode = Mode::read);
  /// Creates a data set over the rows of a tree, in memory or opened. Throws what Schema::of() and
  /// Leaf::tensor() throw.
  explicit Dataset(TensorDict tree);

  /// The number of rows.
  std::int64_t size() const;
  /// The columns.
  const Schema& schema() const& noexcept TENFOLD_LIFETIMEBOUND;
  /// Overload for temporaries, as in `for (auto& c : Dataset("ds").schema().columns())`: returns
  /// the schema by value.
  Schema schema() && { return std::as_const(*this).schema(); }

  /// Copies the rows at these positions, in the given order, repetitions included. Throws
  /// Error(invalid_argument) for a position outside [0, size()), a padding value that a column's
  /// dtype cannot represent, or a padded column "x" if there is also a column "x.length", which is
  /// the name of the row lengths of "x" in batches. Throws Error(corrupt) for invalid end offsets.
  /// For circular buffers: Error(io) (EAGAIN) if a writer overwrites the rows faster than they are
  /// copied, Error(key_not_found) if a row is lost, because its write failed or its writer crashed.
  /// For data sets of parts: Error(corrupt) or Error(io) for a part that cannot be opened.
  Batch rows(std::span<const std::int64_t> positions, const BatchOptions& options = {}) const;
  /// Overload for a list in braces: rows({5, 2, 900'000'000}).
  Batch rows(std::initializer_list<std::int64_t> positions,
             const BatchOptions& options = {}) const {
    return rows(std::span<const std::int64_t>(positions.begin(), positions.size()), options);
  }
  /// Copies the rows [begin, end). Rows of a circular buffer are in the order of
  /// their slots, not by age: the oldest row of a full buffer is row cursor(). Throws
  /// Error(invalid_argument) unless 0 <= begin <= end <= size(), and what rows(positions) throws.
  Batch rows(std::int64_t begin, std::int64_t end, const BatchOptions& options = {}) const;

  /// Returns the whole column of that (dotted) name as one tensor. The tensor is a view of the
  /// stored one if the rows are contiguous rows of one tree that is neither a circular buffer nor a
  /// data set of parts; otherwise it is a copy. With Mode::write_through, the caller may write to a
  /// view, so a call that returns a view removes the checksums of the data set's tensors. Throws
  /// Error(key_not_found), and Error(invalid_argument) for a record of several columns and for
  /// ragged, string and bytes columns: read those with rows().
  Tensor column(std::string_view name) const;

  /// A view of rows [begin, end). `begin` is clamped to [0, size()], and `end` to [begin, size()].
  Dataset range(std::int64_t begin, std::int64_t end) const;
  /// A view of some columns, by (dotted) names. The name of a record selects all of its columns,
  /// and "x.valid" the validity of a nullable column x, as bools. Throws Error(key_not_found), and
  /// Error(invalid_argument) for a column that is selected twice.
  Dataset select(const std::vector<std::string>& names) const;
  /// A view with renamed columns, in the same order. Each pair is a name and the new path. The name
  /// of a record renames all of its columns. Throws Error(key_not_found) for a name without a
  /// column and for an empty new path. Throws Error(invalid_argument) if the new paths are not
  /// valid in a Schema, for example if two columns would have the same path.
  Dataset rename(const std::vector<std::pair<std::string, KeyPath>>& names) const;
  /// A view of the rows at `positions`, int64 [n]. Copies the positions, in four bytes each if
  /// possible. Throws Error(invalid_argument) for another dtype or shape, or a position outside
  /// [0, size()).
  Dataset take(Tensor positions) const;
  /// A view of the rows where `mask`, bool [size()], is true. Throws Error(invalid_argument) for
  /// another dtype or shape.
  Dataset filter(const Tensor& mask) const;
  /// Splits into views of these sizes, which must sum to size(). Without a seed, the views are
  /// contiguous ranges of the rows; with a seed, contiguous ranges of the rows in the order of
  /// Permutation(size(), *seed). Throws Error(invalid_argument) for other sizes.
  std::vector<Dataset> split(const std::vector<std::int64_t>& sizes,
                             std::optional<std::uint64_t> seed = {}) const;
  /// A view of the contiguous shard of `rank`; the sizes of shards differ by at most one. Throws
  /// Error(invalid_argument) unless 0 <= rank < world_size.
  Dataset shard(std::int64_t rank, std::int64_t world_size) const;

  /// Concatenates data sets with the same columns. Throws Error(invalid_argument) naming a column
  /// that differs, or if `parts` is empty.
  static Dataset concat(std::span<const Dataset> parts);
  /// Interleaves the rows of data sets in proportion to `weights`. In every prefix of the result,
  /// the number of rows of each source differs from its weight's share by at most one. Shares
  /// without a common denominator up to 65,536 are rounded to multiples of 1/65,536. The result
  /// ends before the first row whose source has no row left. Throws Error(invalid_argument) like
  /// concat(), or unless there is a finite weight of at least 0 for each source, with a positive
  /// sum.
  static Dataset mix(std::span<const Dataset> sources, std::span<const double> weights);

  // append(), update() and flush() throw Error(unsupported) unless the handle was opened from a
  // path with Mode::write_through and is not closed. append() also throws it unless the path is a
  // folder.

  /// Appends rows; in a circular buffer, overwrites the oldest ones. Readers that open or refresh
  /// the data set at any time see all of the new rows or none. The rows survive a crash of this
  /// process, and, once flush() has returned, a power failure. Returns the new size(). Throws
  /// Error(invalid_argument) naming a column that does not fit, or column and row of a string that
  /// is not UTF-8, or a nullable column "x" if there is also a column "x.valid" that is not one
  /// bool per row. All rows of a nullable column without BatchColumn::valid have values, except
  /// rows of floats that are NaN. Throws Error(io) if another handle or process adds rows (EBUSY)
  /// or the disk is full. If it throws, nothing is appended, but if a write to a circular buffer
  /// failed, the oldest rows, which were to be overwritten, are lost.
  std::int64_t append(const Batch& rows);
  /// Appends the rows of a tree, whose columns must be those of this data set. Throws what
  /// Dataset(TensorDict) and append(Batch) throw.
  std::int64_t append(const TensorDict& rows);
  /// Overwrites the columns of `rows` in place, at these positions; readers may see a partially
  /// written row. Checksums no longer cover the data set's tensors afterwards. Throws
  /// Error(invalid_argument) for a position outside [0, size()) and for values that do not fit,
  /// Error(unsupported) for ragged, string and bytes columns and for a data set of parts.
  void update(std::span<const std::int64_t> positions, const Batch& rows);
  /// Makes all rows durable and updates meta.json, so that tensordict sees them.
  void flush();
  /// Calls flush(), and allows another process to append. This handle can still read; its append()
  /// throws. Throws Error(io) (ESTALE) if this handle has appended and the folder was moved; even
  /// then, another process may append. Has no effect unless the mode is Mode::write_through.
  void close();
  /// Includes the rows that other handles have added since this handle was opened. Throws
  /// Error(unsupported) for a view, or a data set made from a tree, and Error(io) (ESTALE) if a
  /// data set with other columns replaced the opened one.
  void refresh();
  /// The capacity of a circular buffer in rows; 0 for other data sets and for views.
  std::int64_t capacity() const;
  /// The slot of the next row in a circular buffer; size() for other data sets and for views.
  std::int64_t cursor() const;

  /// The tree that contains the rows, without rows that were appended after this handle was opened;
  /// for concat() and mix(), the tree of the first data set. Do not write to its tensors: with
  /// Mode::write_through they are mappings of files that checksums cover. Write with update(), or
  /// to the tensor of column().
  const TensorDict& tree() const noexcept TENFOLD_LIFETIMEBOUND;

 private:
  friend struct detail::Access;

  explicit Dataset(std::shared_ptr<const detail::DatasetState> state) : state_(std::move(state)) {}
  /// An immutable snapshot of the current rows.
  std::shared_ptr<const detail::DatasetState> state() const;
  detail::Growth& growth(const char* what) const;

  std::shared_ptr<const detail::DatasetState> state_;  ///< the rows when the data set was opened
  std::shared_ptr<detail::Growth> growth_;             ///< null unless opened from a path
};

/// Options of create().
struct CreateOptions {
  /// Number of initial rows of zeros, for processes that overwrite disjoint rows in place. Disk
  /// space is reserved if the file system supports it.
  std::int64_t num_rows = 0;
  /// Not 0: a circular buffer of that many rows, initially empty. Its columns must be numbers of
  /// fixed shape.
  std::int64_t capacity = 0;
};

/// Creates a data set of these columns on disk, durably, and opens it with Mode::write_through.
/// Leaf names are chosen from the column names. Throws Error(io) if `path` exists (EEXIST) or has
/// no space for `num_rows` (ENOSPC). Throws Error(invalid_argument) for a schema without columns,
/// two columns or records of the same dotted name ({"a.b"} and {"a", "b"}), a nullable column "x"
/// if there is also a column "x.valid" that is not one bool per row, negative options, or both
/// `num_rows` and `capacity`. Throws Error(unsupported) for a circular buffer with ragged, string
/// or bytes columns.
TENFOLD_API Dataset create(const Path& path, const Schema& schema,
                           const CreateOptions& options = {});

}  // namespace tenfold
