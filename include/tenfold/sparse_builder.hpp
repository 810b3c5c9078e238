#pragma once

#include <cstdint>
#include <memory>

#include <tenfold/sparse_matrix.hpp>

namespace tenfold {

/// Options of SparseBuilder.
struct SparseBuilderOptions {
  SparseLayout layout = SparseLayout::csr;  ///< layout of the result
  /// int32 or int64. If the number of rows, columns or added entries exceeds 2^31 - 1, int64
  /// replaces int32.
  DType index_dtype = DType::int64;
  /// What finish() does with entries of equal coordinates. If true, it adds their values, in
  /// insertion order. If false, it throws Error(invalid_argument) naming the coordinate.
  bool sum_duplicates = true;
  /// Size of the memory for added entries. When it is full, the entries are sorted and moved to a
  /// spill file.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20U;
  /// The folder of the spill files; empty: the system's folder for temporary files.
  Path temporary_folder{};
};

/// Builds a sparse matrix from coordinates in any order. The coordinates may exceed memory, because
/// sorted runs are written to disk and merged.
///
///     SparseBuilder builder(num_users, num_films, DType::float32);
///     for (const Chunk& chunk : chunks) builder.add(chunk.users, chunk.films, chunk.ratings);
///     builder.finish().save("ratings");
///
/// Thread safety: only one thread at a time may use a builder.
class TENFOLD_API SparseBuilder {
 public:
  /// Creates a builder of a matrix of this shape and dtype. Throws Error(invalid_argument) for a
  /// negative number of rows or columns, or an index dtype other than int32 and int64.
  SparseBuilder(std::int64_t num_rows, std::int64_t num_cols, DType dtype,
                const SparseBuilderOptions& options = {});
  SparseBuilder(const SparseBuilder&) = delete;
  SparseBuilder& operator=(const SparseBuilder&) = delete;
  /// Removes the spill files.
  ~SparseBuilder();

  /// Adds n entries: `rows` and `columns` are int32 or int64 [n], `values` is [n] of the builder's
  /// dtype. Throws Error(invalid_argument) for shapes and dtypes that do not fit, for a coordinate
  /// outside the matrix, and after finish(); nothing is added then. Throws Error(io) if a spill
  /// file cannot be written.
  void add(const Tensor& rows, const Tensor& columns, const Tensor& values);
  /// Adds all entries of a matrix, in bounded memory. Throws Error(invalid_argument) if the matrix
  /// has another shape or dtype than this builder, and after finish(). Throws Error(corrupt) for an
  /// invalid offset or index, and Error(io) if a spill file cannot be written, or with errno
  /// ECANCELED if `monitor` stops the call. If it throws Error(corrupt) or Error(io), the entries
  /// before the error stay added.
  void add(const SparseMatrix& matrix, Monitor* monitor = nullptr);

  /// Changes the shape of the matrix. Throws Error(invalid_argument) for a negative number of rows
  /// or columns, or if an added coordinate is outside the new shape.
  void resize(std::int64_t num_rows, std::int64_t num_cols);
  /// The smallest number of rows that a matrix with all added coordinates can have.
  std::int64_t rows_needed() const noexcept;
  /// The smallest number of columns that a matrix with all added coordinates can have.
  std::int64_t cols_needed() const noexcept;

  /// Returns the matrix, in memory or over spill files that the matrix owns. May be called only
  /// once, even if the call throws: a second call throws Error(invalid_argument). Throws
  /// Error(invalid_argument), too, for duplicate coordinates if `sum_duplicates` is false. Throws
  /// Error(unsupported) if duplicates cannot be added because the dtype is float8, float4 or
  /// complex32. Throws Error(io) if a spill file cannot be written, or with errno ECANCELED if
  /// `monitor` stops the call.
  SparseMatrix finish(Monitor* monitor = nullptr);

 private:
  struct TENFOLD_LOCAL State;
  std::unique_ptr<State> state_;
};

}  // namespace tenfold
