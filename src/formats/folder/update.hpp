#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include <tenfold/memmap.hpp>

#include "formats/folder/plan.hpp"

namespace tenfold::detail::formats::folder {

/// Options of an update of a folder to the planned content.
struct UpdateRequest {
  /// If true, tensors are overwritten in place, as tensordict does, and no file of a tensor is
  /// removed; only a file that several tensors share by hard links is replaced. If false, each file
  /// that is written is replaced atomically, and files and folders of the old tree that are not
  /// planned are removed.
  bool in_place = false;
  bool zeros = false;  ///< sparse zeros instead of the leaves' bytes; with `in_place`, existing
                       ///< files keep their content
  bool durable = false;
  int num_threads = 0;
  Monitor* monitor = nullptr;
  /// Returns true if the leaf of the planned file is a mapping of the existing file at `path`,
  /// relative to the folder, so that its bytes need not be written.
  std::function<bool(const Plan::File& file, const std::string& path)> is_kept{};
};

/// Makes the folder at `path` match the plan. Calls drop_checksums_above(), then writes tensors,
/// and metadata last, so that readers find every tensor that new metadata names. Then removes
/// `%checksums`, and `%notes.json` if it is not planned. Creates missing folders. Throws Error(io)
/// rather than writing through a symlink below `path` (ELOOP), and Error(unsupported) for a folder
/// with a `%commit`. With request.in_place, also throws Error(io) for files with hard links outside
/// of the tree (EACCES).
void update_folder(const Plan& plan, const Path& path, const UpdateRequest& request);

// Implement add_memmap_leaf(), add_memmap_node() and write_memmap_value() of memmap.hpp. Each adds
// or changes one entry of a folder, and leaves the others as they are.

Path add_leaf(const Path& folder, const NewLeaf& leaf);
Path add_node(const Path& folder, std::string_view key, const Shape& batch_size, bool robust_names);
void write_value(const Path& folder, std::string_view key, const NonTensor& value);

/// Returns the path of the first planned leaf file that already exists below `path`, or "".
std::string first_existing_leaf(const Plan& plan, const Path& path);

}  // namespace tenfold::detail::formats::folder
