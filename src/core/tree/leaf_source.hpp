#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tenfold/buffer.hpp>
#include <tenfold/leaf.hpp>
#include <tenfold/tensor.hpp>

#include "base/access.hpp"
#include "base/fail.hpp"

namespace tenfold {

class Monitor;

namespace os {
struct FileInfo;
}

namespace detail {

/// Identity of stored bytes, to find shared storage: two leaves with the same identity are over the
/// same bytes. The exception is StoredRange{}: no other leaf is known to share the bytes.
struct StoredRange {
  static constexpr std::uint64_t kThisProcess = ~std::uint64_t{0};

  std::uint64_t device = 0;  ///< device of the file, or kThisProcess
  std::uint64_t inode = 0;   ///< inode of the file, or the address of an object in this process
  /// Distinguishes bytes for which the other members are equal, such as records of an archive,
  /// files of a checkpoint, or casts of the same bytes to or from different dtypes.
  std::uint64_t part = 0;
  std::uint64_t offset_bytes = 0;  ///< in the file or object; for a tensor in memory, its address
  std::uint64_t size_bytes = 0;
  std::vector<StoredRange> pieces{};  ///< the pieces of an assembled leaf

  /// A range of a file. StoredRange{} for a file whose inode is not known.
  static StoredRange in(const os::FileInfo& file, std::uint64_t offset_bytes,
                        std::uint64_t size_bytes);

  bool operator==(const StoredRange&) const = default;
};

/// The source of leaves that are not in memory: usually one object per file, or per folder node.
/// Thread-safe.
class LeafSource {
 public:
  virtual ~LeafSource() = default;

  /// The bytes of the contiguous tensor of `leaf`: mapped in the mode of the open call, or copied
  /// into memory if they are small, unaligned, compressed or computed. The source of an opened file
  /// checks the file's size first and caches the bytes, so two calls return the same memory, also
  /// for two leaves over the same range of one file.
  virtual Buffer map(const Leaf& leaf) = 0;

  /// Reads [offset_bytes, offset_bytes + into.size()) of the contiguous tensor without mapping it.
  /// If map() was called before in mode copy_on_write, the program may have changed the mapped
  /// bytes. Leaves of folders and .npy files, and zip entries that are compressed or in Fortran
  /// order, then return the bytes of map(). Other leaves return what their file stores.
  virtual void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) = 0;

  /// Implements Leaf::sizes() for a nested leaf that is not in memory: the shapes of its
  /// components. Throws Error(invalid_argument) for other leaves.
  virtual Tensor nested_sizes(const Leaf& leaf);

  /// Like map(), for a leaf that is part of a torch storage: the whole storage, and the offset of
  /// the leaf in it.
  struct Part {
    Buffer storage;
    std::uint64_t offset_bytes = 0;
  };
  virtual Part map_storage(const Leaf& leaf) { return {map(leaf), 0}; }

  /// True if all leaves of the source that can be mapped are in one mapping. Then mapping them from
  /// several threads is not faster.
  virtual bool is_one_mapping() const noexcept { return false; }

  /// Implements stored_range() (core/tensor/leaf_bytes.hpp) for a leaf of this source that has
  /// elements and is not nested.
  virtual StoredRange identity(const Leaf& leaf);

  /// For messages: the file that stores the leaf's bytes, and in a file of several tensors the
  /// part, such as `tensor "w"`. The path is empty if the source has no file.
  virtual base::Where where(const Leaf& leaf) const = 0;

  /// The leaves from which `leaf` is assembled or computed; empty if `leaf` is stored as one range,
  /// or if the source does not report them.
  virtual std::vector<Leaf> parts(const Leaf& leaf) const;

  /// Makes writes through shared mappings durable (msync, fdatasync); does nothing for other
  /// mappings. The monitor may be null.
  virtual void flush(Monitor* /*monitor*/) {}
};

}  // namespace detail

using detail::LeafSource;
using detail::StoredRange;

/// The source of a leaf; null for a leaf in memory.
inline const std::shared_ptr<LeafSource>& source_of(const Leaf& leaf) noexcept {
  return detail::Access::source(leaf);
}

/// Returns the leaf's position, which only its source interprets.
inline std::uint64_t position_of(const Leaf& leaf) noexcept {
  return detail::Access::position(leaf);
}

/// Returns the number of elements of a nested tensor with these sizes (int64 `[n, k]`, contiguous,
/// one row for each component): the sum of the products of the rows. Returns nullopt if a length is
/// negative, or if a product or the sum does not fit 63 bits.
std::optional<std::uint64_t> nested_numel(const Tensor& sizes);

/// A leaf that `source` can map or read.
inline Leaf stored_leaf(DType dtype, Shape shape, std::shared_ptr<LeafSource> source,
                        std::uint64_t position) {
  return detail::Access::make<Leaf>(dtype, std::move(shape), std::move(source), position);
}

}  // namespace tenfold

template <>
struct std::hash<tenfold::StoredRange> {
  std::size_t operator()(const tenfold::StoredRange& range) const noexcept;
};
