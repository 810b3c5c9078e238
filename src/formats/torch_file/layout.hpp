#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tenfold/leaf.hpp>

namespace tenfold::detail::formats::torch_file {

/// A storage of a file of torch.save that is going to be written.
struct StorageLayout {
  Leaf bytes;  ///< what is written, as it lies
  /// Of the typed storage class; its tensors are of this dtype all.
  DType dtype = DType::uint8;
  /// Bytes without a dtype: torch's typed classes know not all dtypes, and one class a storage.
  bool untyped = false;
};

/// How one tensor lies in its storage, in elements.
struct TensorLayout {
  std::size_t storage = 0;
  std::uint64_t offset = 0;
  Shape strides;
};

struct FileLayout {
  std::vector<StorageLayout> storages;  ///< in the order in which tensors first need them
  std::vector<TensorLayout> tensors;    ///< of each leaf
};

/// The name of the typed storage class of a dtype ("FloatStorage"); empty where torch has none.
std::string_view storage_class(DType dtype) noexcept;

/// Lays tensors into storages as torch.save does. Those whose memory overlaps share one storage and
/// keep their strides, so that what is tied, and what is a view of another, is so after loading. A
/// tensor on its own is stored as it lies, unless that would take more than its elements: then
/// compactly. Leaves on disk are shared if they are over the same bytes. Reads no tensor.
FileLayout lay_out_file(std::span<const Leaf> leaves);

}  // namespace tenfold::detail::formats::torch_file
