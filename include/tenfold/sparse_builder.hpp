#pragma once

#include <cstdint>
#include <memory>

#include <tenfold/sparse_matrix.hpp>

namespace tenfold {

struct SparseBuilderOptions {
  SparseLayout layout = SparseLayout::csr;
  /// Of the indices, int32 or int64; int32 becomes int64 where a number does not fit.
  DType index_dtype = DType::int64;
  /// Entries of the same coordinate are added up, in the order in which they came. False:
  /// Error(invalid_argument) naming the coordinate.
  bool sum_duplicates = true;
  /// For entries that wait to be sorted; what is more goes to files without a name.
  std::uint64_t memory_bytes = std::uint64_t{256} << 20U;
  Path temporary_folder{};  ///< of these files; empty: the system's
};

/// Makes a sparse matrix of coordinates in any order, of which there may be more than fit memory:
/// sorted runs go to disk and are merged.
///
///   SparseBuilder builder(num_users, num_films, DType::float32);
///   for (const Chunk& chunk : chunks) builder.add(chunk.users, chunk.films, chunk.ratings);
///   builder.finish().save("ratings");
///
/// Thread safety: none; one thread at a time.
class TENFOLD_API SparseBuilder {
 public:
  /// Throws Error(invalid_argument) for negative lengths.
  SparseBuilder(std::int64_t num_rows, std::int64_t num_cols, DType dtype,
                const SparseBuilderOptions& options = {});
  SparseBuilder(const SparseBuilder&) = delete;
  SparseBuilder& operator=(const SparseBuilder&) = delete;
  ~SparseBuilder();

  /// More entries: `rows` and `columns` int32 or int64 [n], `values` [n] of the builder's dtype.
  /// Throws Error(invalid_argument) for lengths and dtypes that do not fit and for a coordinate
  /// outside the matrix; nothing is added then.
  void add(const Tensor& rows, const Tensor& columns, const Tensor& values);
  /// All entries of a matrix of the same shape and dtype, in bounded memory. Throws Error(io) with
  /// errno ECANCELED if `monitor` stops it.
  void add(const SparseMatrix& matrix, Monitor* monitor = nullptr);

  /// Makes it a matrix of another shape. Throws Error(invalid_argument) if a coordinate that was
  /// added is outside.
  void resize(std::int64_t num_rows, std::int64_t num_cols);
  /// The smallest shape that all coordinates fit.
  std::int64_t rows_needed() const noexcept;
  std::int64_t cols_needed() const noexcept;

  /// The matrix, in memory or over files without a name that go with it. Once. Throws
  /// Error(invalid_argument) for entries of the same coordinate that may not be summed,
  /// Error(unsupported) if their dtype has no sum, Error(io) with errno ECANCELED if `monitor`
  /// stops it.
  SparseMatrix finish(Monitor* monitor = nullptr);

 private:
  struct TENFOLD_LOCAL State;
  std::unique_ptr<State> state_;
};

}  // namespace tenfold
