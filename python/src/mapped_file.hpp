#pragma once

#include <cstdint>
#include <string>

#include "common.hpp"

namespace tenfold::python {

/// The file of a MemoryMappedTensor: the tensor starts `address - base` bytes into the file. Views
/// share this object with their base.
struct MappedFile {
  std::string path;  ///< absolute; empty for an unnamed file
  Mode mode = Mode::write_through;
  std::uint64_t device = 0;  ///< with `inode`, the identity of the file when it was mapped
  std::uint64_t inode = 0;
  std::uintptr_t base = 0;  ///< the address of the file's first byte, even if that is not mapped
  nb::object handler;       ///< keeps the descriptor of an unnamed file open; or empty

  /// For a leaf on disk that `tensor` maps completely.
  static MappedFile of_leaf(const Leaf& leaf, const Tensor& tensor, Mode mode);
};

/// Throws Error(corrupt) if the file of `object`, a MemoryMappedTensor over `tensor`, was
/// truncated: reading the tensor would raise SIGBUS. A replaced or removed file is fine, because
/// its bytes remain.
void check_not_truncated(nb::handle object, const Tensor& tensor);

}  // namespace tenfold::python
