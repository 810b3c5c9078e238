#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include <tenfold/memmap.hpp>

#include "formats/folder/plan.hpp"

namespace tenfold::detail::formats::folder {

/// Options of update_folder().
struct UpdateRequest {
  /// If true, overwrites files of tensors in place, as tensordict does, but replaces a file that
  /// several tensors share by hard links. Removes no files of tensors. If false, atomically
  /// replaces each file that it writes, and removes files and folders of the old tree that are not
  /// planned.
  bool in_place = false;
  bool zeros = false;          ///< store zeros as holes instead of the bytes of the leaves; with
                               ///< `in_place`, existing files keep their content
  bool durable = false;        ///< fsync the files
  int num_threads = 0;         ///< as WriteRequest::num_threads
  Monitor* monitor = nullptr;  ///< null: progress is not reported
  /// Returns true if the leaf of the planned file is a mapping of the existing file at `path`,
  /// relative to the folder, so that its bytes need not be written. Empty: all leaves are written.
  std::function<bool(const Plan::File& file, const std::string& path)> is_kept{};
};

/// Makes the folder at `path` match the plan. Calls drop_checksums_above(), then writes tensors,
/// and metadata last, so that readers find every tensor that new metadata names. Then removes
/// `%checksums`, and `%notes.json` if it is not planned. Creates missing folders. Throws Error(io)
/// rather than writing through a symlink below `path` (ELOOP), and Error(unsupported) for a folder
/// with a `%commit`. With request.in_place, also throws Error(io) for files with hard links outside
/// of the tree (EACCES).
void update_folder(const Plan& plan, const Path& path, const UpdateRequest& request);

// Implementations of add_memmap_leaf(), add_memmap_node() and write_memmap_value() of
// tenfold/memmap.hpp.

Path add_leaf(const Path& folder, const NewLeaf& leaf);
Path add_node(const Path& folder, std::string_view key, const Shape& batch_size, bool robust_names);
void write_value(const Path& folder, std::string_view key, const NonTensor& value);

/// Returns the path of the first planned leaf file that already exists below `path`, or "".
std::string first_existing_leaf(const Plan& plan, const Path& path);

}  // namespace tenfold::detail::formats::folder
