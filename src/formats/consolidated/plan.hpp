#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/tensordict.hpp>

#include "formats/shared/leaf_writer.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::consolidated {

/// Longer documents are neither written nor read.
inline constexpr std::uint64_t kMaxDocumentBytes = std::uint64_t{256} << 20;

/// What a tree becomes in a consolidated file.
struct Plan {
  struct Tensor {
    Leaf leaf;
    std::uint64_t begin = 0;
    std::uint64_t size_bytes = 0;
    std::uint64_t stop = 0;  ///< where the next one may begin: a multiple of 8
  };

  std::vector<Tensor> tensors;  ///< each that is stored, in the order of its bytes
  std::uint64_t data_bytes = 0;
  std::string document;  ///< with blank checksums, if asked for
};

struct PlanOptions {
  /// Notes, order and ties. False: what tensordict's `consolidate` writes, byte for byte, but for a
  /// gap before a tensor that it would place where it cannot look at it.
  bool notes = true;
  bool checksums = true;
  bool locked = false;  ///< what the file says of every node
};

/// Plans a file. Throws Error(unsupported) naming the key for what tensordict could not read back,
/// Error(invalid_argument) for a tree that nests too deep or contains itself.
Plan make_plan(const TensorDict& tree, const PlanOptions& options);

}  // namespace tenfold::detail::formats::consolidated
