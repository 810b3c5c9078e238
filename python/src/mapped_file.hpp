#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "common.hpp"

namespace tenfold::python {

/// The file of a MemoryMappedTensor. A tensor whose elements start at `address` starts `address -
/// base` bytes into the file. Views share this object with the tensor that they view.
struct MappedFile {
  std::string path;  ///< absolute; empty for an unnamed file
  Mode mode = Mode::write_through;
  std::uint64_t inode = 0;  ///< inode of the mapped file; 0 if it is unknown
  std::uintptr_t base = 0;  ///< the address of the file's first byte, even if that is not mapped
  nb::object handler;       ///< keeps the descriptor of an unnamed file open; or empty
  /// Device and inode that the file must have when a pickle is loaded; if empty, those that the
  /// path has when the tensor is pickled.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> identity;

  /// The file of a leaf on disk. `tensor` is the whole leaf and starts at the file's first byte.
  static MappedFile of_leaf(const Leaf& leaf, const Tensor& tensor, Mode mode);
};

/// The path of the file with the bytes of a leaf that is not in memory.
std::string file_of(const Leaf& leaf);

/// Throws Error(corrupt) if the file of `object`, a MemoryMappedTensor over `tensor`, was
/// truncated: reading the tensor would raise SIGBUS. A replaced or removed file is not an error,
/// because its bytes remain mapped.
void check_not_truncated(nb::handle object, const Tensor& tensor);

}  // namespace tenfold::python
