#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <tenfold/io.hpp>
#include <tenfold/tensordict.hpp>

namespace tenfold {

namespace detail {
struct Access;
class SparseGrowth;
struct SparseState;
}  // namespace detail

/// The layout of a matrix, by torch's and scipy's names.
enum class SparseLayout : std::uint8_t {
  csr,  ///< row by row: crow_indices [rows + 1], col_indices [nnz], values [nnz]
  csc,  ///< column by column: ccol_indices [columns + 1], row_indices [nnz], values [nnz]
  coo,  ///< by coordinates: indices [2, nnz], values [nnz]; small if most rows are empty
};

/// Returns the name of the layout: "csr", "csc", "coo".
TENFOLD_API std::string to_string(SparseLayout layout);
/// The layout of that name; nullopt if there is none.
TENFOLD_API std::optional<SparseLayout> sparse_layout_from_name(std::string_view name) noexcept;

/// The layout of returned rows or columns.
enum class RowsLayout : std::uint8_t {
  dense,   ///< all elements, zeros included
  csr,     ///< compressed sparse rows: entries in row order, and the start of each row
  coo,     ///< coordinates: the row and the column of each entry
  padded,  ///< the entries of each row or column, padded to the longest
};
/// The layout of that name; nullopt if there is none.
TENFOLD_API std::optional<RowsLayout> rows_layout_from_name(std::string_view name) noexcept;

/// A copy of rows or columns of a matrix. The copy is itself a matrix of num_rows rows and num_cols
/// columns.
struct SparseRows {
  RowsLayout layout = RowsLayout::dense;  ///< the layout of the tensors below
  std::int64_t num_rows = 0;              ///< rows of the copy
  std::int64_t num_cols = 0;              ///< columns of the copy
  /// dense: [num_rows, num_cols]. csr, coo: [nnz], sorted by row and column. padded: [count,
  /// longest], the entries of each of `count` requested rows or columns, followed by zeros.
  Tensor values;
  /// csr: [nnz], the columns of the entries. coo: int64 [2, nnz], rows and columns. padded: [count,
  /// longest], followed by zeros: the columns of the entries of each requested row, or the rows of
  /// the entries of each requested column. In csr and padded, the dtype is the matrix's index
  /// dtype. cols(), and rows() of a csc matrix, use int64 instead of int32 if int32 is too small.
  Tensor indices;
  Tensor crow_indices;  ///< csr: [num_rows + 1], of the dtype of `indices`
  Tensor lengths;       ///< padded: int64 [count], the number of entries of each row or column
};

/// A sparse matrix on disk or in memory. It is stored as a torch sparse tensor (a node of kind
/// sparse): Python's tenfold.load() returns a torch tensor, and tensordict reads the component
/// tensors.
///
///     tenfold::SparseMatrix m("ratings");                       // reads no entry
///     tenfold::SparseRows batch = m.rows({5, 900'000}, tenfold::RowsLayout::csr);
///     auto rating = m.at(5, 17).item<float>();
///
/// Access to rows is fast in csr, and in coo, where each row takes a binary search. Access to
/// columns is fast in csc. Other accesses read all indices: convert the layout first. Explicit
/// zeros are kept. No call reads or writes out of bounds, whatever the file contains: reading an
/// entry whose offsets or index are out of bounds throws Error(corrupt).
///
/// A moved-from SparseMatrix can only be assigned or destroyed.
///
/// Thread safety: all members may be called from any thread, also while one thread appends.
class TENFOLD_API SparseMatrix {
 public:
  /// Opens a path. Throws what open() throws, Error(invalid_argument) if the tree is not a sparse
  /// matrix, Error(corrupt) if its tensors contradict each other. Checks only shapes, dtypes and,
  /// in csr and csc, the last offset; call check() to check all indices.
  explicit SparseMatrix(const Path& path, Mode mode = Mode::read);
  /// Creates a matrix over a node of kind sparse, opened or in memory. Shares the memory of
  /// contiguous tensors. Throws Error(invalid_argument) and Error(corrupt) in the same cases as the
  /// constructor that opens a path.
  explicit SparseMatrix(TensorDict node);

  /// Creates a matrix from torch's component tensors: for csr and csc, the compressed indices, the
  /// plain indices and the values; for coo, the coalesced indices and the values. Shares the memory
  /// of contiguous tensors. Checks shapes, dtypes, offsets and all indices, and throws
  /// Error(invalid_argument) if one of these is invalid.
  static SparseMatrix of_parts(SparseLayout layout, std::int64_t num_rows, std::int64_t num_cols,
                               std::span<const Tensor> parts);

  /// The storage layout.
  SparseLayout layout() const;
  /// The number of rows.
  std::int64_t num_rows() const;
  /// The number of columns.
  std::int64_t num_cols() const;
  /// The number of stored entries.
  std::int64_t nnz() const;
  /// The dtype of the entries.
  DType dtype() const;
  /// The dtype of the indices: int32 or int64.
  DType index_dtype() const;

  /// Returns the element as a 0-d tensor; zero if no entry is stored. Throws
  /// Error(invalid_argument) if `row` or `column` is out of range, Error(unsupported) for a coo
  /// matrix that is not coalesced.
  Tensor at(std::int64_t row, std::int64_t column) const;
  /// Copies rows by index, in the given order, repetitions included: [rows.size(), num_cols()].
  /// Throws Error(invalid_argument) for an index outside [0, num_rows()). Also throws it with
  /// RowsLayout::csr and coo if a csr or coo matrix has int32 indices and these rows have more than
  /// 2^31 - 1 entries. Throws Error(unsupported) for a coo matrix that is not coalesced.
  SparseRows rows(std::span<const std::int64_t> rows, RowsLayout layout = RowsLayout::dense) const;
  /// Overload for a list in braces: rows({5, 900'000}).
  SparseRows rows(std::initializer_list<std::int64_t> rows,
                  RowsLayout layout = RowsLayout::dense) const {
    return this->rows(std::span<const std::int64_t>(rows.begin(), rows.size()), layout);
  }
  /// Prefetches the entries of these rows of a csr matrix and returns without waiting for them, so
  /// that the disk works while the caller uses the previous batch. Has no effect on a matrix of
  /// another layout. This call is optional: rows() of a csr matrix prefetches its rows itself.
  /// Throws Error(invalid_argument) for an index outside [0, num_rows()).
  void will_need(std::span<const std::int64_t> rows) const;
  /// Copies columns by index, in the given order: [num_rows(), columns.size()]. With
  /// RowsLayout::padded, row i of the tensors holds the entries of columns[i]. Throws
  /// Error(invalid_argument) for an index outside [0, num_cols()), and Error(unsupported) for a coo
  /// matrix that is not coalesced.
  SparseRows cols(std::span<const std::int64_t> columns,
                  RowsLayout layout = RowsLayout::dense) const;
  /// Overload for a list in braces: cols({5, 7}).
  SparseRows cols(std::initializer_list<std::int64_t> columns,
                  RowsLayout layout = RowsLayout::dense) const {
    return cols(std::span<const std::int64_t>(columns.begin(), columns.size()), layout);
  }

  /// Checks that all offsets and indices are in range, and that indices increase within each row
  /// (csc: column; coalesced coo: from entry to entry, by row and column). Does not check the order
  /// in a coo matrix that is not coalesced. Throws Error(corrupt). After a successful check,
  /// further calls return at once until append_rows(), refresh() or close(). Call it before other
  /// libraries use the tensors, and before at() if the file may be invalid: at() may return zero
  /// for an entry of a row that is not sorted.
  void check() const;

  /// Returns the transpose. A csr matrix becomes csc and a csc matrix csr, over the same memory,
  /// without reading indices. The entries of a coo matrix are checked as by check(), copied and
  /// sorted again; if the matrix is not coalesced, the values of duplicates are added. Throws
  /// Error(corrupt) for invalid entries, and Error(unsupported) for duplicates of float8, float4 or
  /// complex32.
  SparseMatrix transposed() const;

  /// A node of kind sparse with the component tensors, by torch's names.
  TensorDict tree() const;
  /// The path of the matrix, or of the node that it was created from, for messages; "sparse matrix"
  /// if there is no path.
  std::string where() const;

  /// Saves tree() by tenfold::save(), which is atomic. Returns the path.
  Path save(const Path& path, const SaveOptions& options = {}) const;

  // append_rows(), flush(), close() and refresh() throw Error(unsupported) unless the matrix was
  // opened by the constructor that takes a path. append_rows() and flush() also throw it unless the
  // mode is Mode::write_through, and after close(). In addition, append_rows() throws it unless the
  // path is a folder with layout csr.

  /// Appends the rows of `rows`, a matrix of any layout with the same number of columns and the
  /// same dtype. Readers that open or refresh this matrix at any time see all of the new rows or
  /// none. The rows survive a crash of this process, and, once flush() has returned, a power
  /// failure. Throws Error(invalid_argument) for another number of columns or dtype, more entries
  /// than int32 offsets can count, or a column that int32 indices cannot hold; Error(corrupt) if
  /// check() of `rows` throws it; Error(io) if another handle has appended and is not closed
  /// (EBUSY), or if the disk is full. If it throws, nothing is appended.
  void append_rows(const SparseMatrix& rows);
  /// Makes the rows that this handle has appended durable.
  void flush();
  /// Makes the appended rows durable, and allows another handle to append. This handle can still
  /// read, but its append_rows() and flush() throw. Throws Error(io) (ESTALE) if rows were appended
  /// and the folder was moved; even then, another handle may append. Has no effect unless the mode
  /// is Mode::write_through.
  void close();
  /// Includes the rows that other handles have appended since this handle was opened or refreshed.
  void refresh();

 private:
  friend struct detail::Access;

  /// An immutable snapshot of the current rows.
  std::shared_ptr<const detail::SparseState> state() const;
  detail::SparseGrowth& growth(const char* what) const;

  std::shared_ptr<const detail::SparseState> state_;  ///< the rows; null if opened from a path
  std::shared_ptr<detail::SparseGrowth> growth_;      ///< null unless opened from a path
};

}  // namespace tenfold
