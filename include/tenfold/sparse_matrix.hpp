#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

struct SparseState;
class SparseGrowth;

/// How the entries of a matrix are stored, by torch's and scipy's names.
enum class SparseLayout : std::uint8_t {
  csr,  ///< row by row: crow_indices [rows + 1], col_indices [nnz], values [nnz]
  csc,  ///< column by column: ccol_indices [columns + 1], row_indices [nnz], values [nnz]
  coo,  ///< by coordinates: indices [2, nnz], values [nnz]; small where most rows are empty
};

/// "csr", "csc", "coo".
TENFOLD_API std::string_view name(SparseLayout layout) noexcept;
TENFOLD_API std::optional<SparseLayout> sparse_layout_from_name(std::string_view name) noexcept;

/// How rows, or columns, that were asked for come.
enum class RowsLayout : std::uint8_t { dense, csr, coo, padded };
TENFOLD_API std::optional<RowsLayout> rows_layout_from_name(std::string_view name) noexcept;

/// Rows or columns of a matrix, copied: a matrix of num_rows times num_cols.
struct SparseRows {
  RowsLayout layout = RowsLayout::dense;
  std::int64_t num_rows = 0;
  std::int64_t num_cols = 0;
  /// dense: [num_rows, num_cols]. csr, coo: [nnz], by row, in a row by column. padded: [lines,
  /// longest], zeros behind each line's entries; a line is one of those that were asked for.
  Tensor values;
  Tensor indices;       ///< csr: columns [nnz]. coo: int64 [2, nnz]. padded: [lines, longest]
  Tensor crow_indices;  ///< csr: [num_rows + 1], of the dtype of `indices`
  Tensor lengths;       ///< padded: int64 [lines], entries of each line
};

/// A matrix of which most elements are 0, on disk or in memory. It is stored as the sparse tensor
/// that torch knows, a node of kind sparse: tenfold::load() gives the same thing to Python as a
/// torch tensor, and tensordict sees three plain tensors.
///
///   tenfold::SparseMatrix m("ratings");                       // reads no entry
///   tenfold::SparseRows batch = m.rows(std::array<std::int64_t, 2>{5, 900'000}, RowsLayout::csr);
///   float rating = *m.at(5, 17).data<float>();
///
/// Rows are fast in csr and, with a search for each, in coo; columns in csc. The other way round
/// all indices are read: to_layout() first. Entries that are 0 are kept. Whatever a file says, no
/// call reads or writes outside of its memory: what is used is checked, else Error(corrupt).
///
/// Thread safety: all members may be called from any thread, also while one thread appends.
class TENFOLD_API SparseMatrix {
 public:
  /// Throws what open() throws, Error(invalid_argument) if it is no sparse matrix, Error(corrupt)
  /// if the parts contradict each other. Looks at shapes, dtypes and the last end alone.
  explicit SparseMatrix(const Path& path, Mode mode = Mode::read);
  /// A node of kind sparse, opened or in memory: tensorless copies share its memory.
  explicit SparseMatrix(TensorDict node);

  /// Of its parts as torch names them, in that order: ends, indices and values, or coalesced
  /// indices and values; shared, not copied. Throws Error(invalid_argument) unless they are sound.
  static SparseMatrix of_parts(SparseLayout layout, std::int64_t num_rows, std::int64_t num_cols,
                               std::span<const Tensor> parts);

  SparseLayout layout() const;
  std::int64_t num_rows() const;
  std::int64_t num_cols() const;
  /// Entries that are stored.
  std::int64_t nnz() const;
  DType dtype() const;
  DType index_dtype() const;

  /// The element, 0-d. Throws Error(invalid_argument) if it is out of range.
  Tensor at(std::int64_t row, std::int64_t column) const;
  /// Rows by number, as often and in the order as named: [rows.size(), num_cols()].
  /// Throws Error(invalid_argument) for one outside [0, num_rows()).
  SparseRows rows(std::span<const std::int64_t> rows, RowsLayout layout = RowsLayout::dense) const;
  /// Has what these rows of a csr matrix need read from the device, and does not wait: rows() of
  /// the batch before can go on meanwhile. A hint; rows() itself asks for all of its rows at once.
  void will_need(std::span<const std::int64_t> rows) const;
  /// Columns by number: [num_rows(), columns.size()]. Lines of `padded` are columns.
  SparseRows cols(std::span<const std::int64_t> columns,
                  RowsLayout layout = RowsLayout::dense) const;

  /// Reads all indices: within the shape, rising within each line. The first call that finds no
  /// fault is remembered. Throws Error(corrupt). Needed only before others are given the parts.
  void check() const;

  /// Rows as columns: a csr matrix becomes csc and the other way round, over the same memory,
  /// without a look at the indices. The entries of a coo matrix are sorted anew.
  SparseMatrix transposed() const;

  /// The parts, by torch's names.
  TensorDict tree() const;
  /// Where it was opened, for messages; "sparse matrix" in memory.
  std::string where() const;

  /// tenfold::save() of tree(): whole or not at all.
  Path save(const Path& path, const SaveOptions& options = {}) const;

  // Rows are added by a handle that was opened with Mode::write_through, in layout csr, of a
  // folder; others throw Error(unsupported).

  /// Adds the rows of `rows`, of as many columns and the same dtype, behind those there are. They
  /// are visible, all at once, to whoever opens or refreshes the matrix afterwards, and survive the
  /// death of this process; a power loss only after flush(). Throws Error(invalid_argument) for
  /// rows that do not fit, Error(io) if another process adds rows (EBUSY) or the disk is full; with
  /// nothing appended.
  void append_rows(const SparseMatrix& rows);
  /// Brings all rows to the device.
  void flush();
  /// flush(); afterwards another process may append. Reading goes on, appending throws.
  void close();
  /// Sees the rows that others have added since it was opened.
  void refresh();

  /// The rows as they are now, which stay as they are when others come.
  std::shared_ptr<const SparseState> state() const;

 private:
  SparseGrowth& growth(const char* what) const;

  std::shared_ptr<const SparseState> state_;  ///< of a matrix without a path
  std::shared_ptr<SparseGrowth> growth_;
};

}  // namespace tenfold
