#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tenfold/schema.hpp>
#include <tenfold/tensor.hpp>
#include <tenfold/tensordict.hpp>

#include "base/fail.hpp"

namespace tenfold {

class InPlaceWrites;
class RingGuard;

/// The subject of messages about `tree`: its path, or "data set" if it is in memory.
base::Where subject_of(const TensorDict& tree);

/// The number of rows of `tree`: the first batch dimension of a TensorDict or tensorclass, or
/// dimension 0 of the batched tensors of a dict. Throws Error(invalid_argument) if there is no such
/// dimension, if the tensors of a dict have different numbers of rows, or for other kinds of nodes.
std::int64_t num_rows_of(const TensorDict& tree);

/// Checks, from metadata only, that every leaf of every column exists and has the right dtype and
/// shape. If not, throws Error(corrupt) that names column and leaf. Also throws the errors of
/// num_rows_of().
void check_table(const TensorDict& tree, const Schema& schema);

/// Location of one column in (mapped) memory.
struct StoredColumn {
  Tensor values;     ///< rows [N, *shape], each of them contiguous; or the elements of ragged rows,
                     ///< contiguous [M, *shape]
  Tensor ends;       ///< end offsets of ragged rows or strings, int64 [N]; else empty
  Tensor item_ends;  ///< for lists of strings: end offsets of all strings, int64; else empty
  Tensor valid;      ///< validity of a nullable column, bool [N]; else empty
  /// The validity as a column of its own, if there is one.
  std::shared_ptr<const StoredColumn> validity;
  std::uint64_t row_bytes = 0;     ///< size of a row of `values` (of an element, if ragged)
  std::uint64_t stride_bytes = 0;  ///< distance from one row to the next
};

/// A tree as rows, with mapped and checked columns.
///
/// Thread safety: const members may be called from any thread.
class Table {
 public:
  /// `in_place`: for a tree whose tensors are shared mappings; null for other trees.
  explicit Table(TensorDict tree, std::shared_ptr<InPlaceWrites> in_place = nullptr);
  /// A table that keeps no file descriptor open, except the descriptors of ring(). Its tree() is
  /// empty, because the leaves of a tree keep descriptors open.
  static std::shared_ptr<const Table> without_tree(TensorDict tree);

  const TensorDict& tree() const noexcept { return tree_; }
  /// The path, for messages; empty for a tree in memory.
  const std::string& where() const noexcept { return where_; }
  std::int64_t num_rows() const noexcept { return num_rows_; }
  const Schema& schema() const noexcept { return schema_; }
  /// The column at `index` of the schema.
  const StoredColumn& stored(std::size_t index) const { return stored_.at(index); }
  /// Must be called before a write to the tensors of stored(): removes the checksums of the files,
  /// which the write invalidates. Does nothing if there are none.
  void will_write_in_place() const;
  /// The guard of a circular buffer, whose rows may be overwritten while they are read; null for
  /// other tables.
  const std::shared_ptr<const RingGuard>& ring() const noexcept { return ring_; }

 private:
  TensorDict tree_;
  std::string where_;
  std::int64_t num_rows_ = 0;
  Schema schema_;
  std::vector<StoredColumn> stored_;
  std::shared_ptr<const RingGuard> ring_;
  std::shared_ptr<InPlaceWrites> in_place_;
};

}  // namespace tenfold
