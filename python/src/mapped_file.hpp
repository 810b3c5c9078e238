#pragma once

#include <cstdint>
#include <string>

#include "common.hpp"

namespace tenfold::python {

/// Where the bytes of a MemoryMappedTensor are: the tensor starts `address - base` bytes into the
/// file. Views share one object with the tensor they were made of.
struct MappedFile {
  std::string path;  ///< absolute; empty for a file without a name
  Mode mode = Mode::write_through;
  std::uint64_t device = 0;  ///< with `inode`: which file it was when it was mapped
  std::uint64_t inode = 0;
  std::uintptr_t base = 0;  ///< the address at which the file's first byte is, or would be
  nb::object handler;       ///< what keeps the descriptor of a file without a name; or empty

  /// Of a leaf on disk that `tensor` maps whole.
  static MappedFile of_leaf(const Leaf& leaf, const Tensor& tensor, Mode mode);
};

/// Throws Error(corrupt) if the file under `object`, a MemoryMappedTensor over `tensor`, has become
/// too short: reading it would end the process. A file that was replaced or removed is no matter,
/// its bytes stay.
void check_not_truncated(nb::handle object, const Tensor& tensor);

}  // namespace tenfold::python
