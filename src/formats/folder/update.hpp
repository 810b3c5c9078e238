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
  /// If true, tensors are overwritten in place, as tensordict does, and none is removed. If false,
  /// each file that is written is replaced atomically, and files of the old tree that are not
  /// planned are removed.
  bool in_place = false;
  bool zeros = false;  ///< sparse zeros instead of the leaves' bytes; with `in_place`, existing
                       ///< files keep their content
  bool durable = false;
  int num_threads = 0;
  Monitor* monitor = nullptr;
  /// Returns true if the planned file's leaf is mapped from the existing file at `path` (relative
  /// to the folder), so that its bytes need not be written.
  std::function<bool(const Plan::File& file, const std::string& path)> is_kept{};
};

/// Changes the folder at `path` to the plan. Writes tensors first and metadata last, so that
/// readers find every tensor that metadata names. Then removes `%checksums`, and `%notes.json` if
/// it is not planned. Creates missing folders; refuses to write through symlinks below `path`
/// (Error(io), ELOOP), and in place to files with hard links outside of the tree (EACCES) and to a
/// folder with a `%commit` (Error(unsupported)).
void update_folder(const Plan& plan, const Path& path, const UpdateRequest& request);

// Implement add_memmap_leaf(), add_memmap_node() and write_memmap_value() of memmap.hpp: one entry
// is added to a folder, or changed, and the rest stays as it is.

Path add_leaf(const Path& folder, const NewLeaf& leaf);
Path add_node(const Path& folder, std::string_view key, const Shape& batch_size, bool robust_names);
void write_value(const Path& folder, const NonTensor& value);

/// Returns the path of the first planned file of a leaf that already exists below `path`, or "".
std::string first_existing_leaf(const Plan& plan, const Path& path);

}  // namespace tenfold::detail::formats::folder
