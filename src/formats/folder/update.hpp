#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include <tenfold/io.hpp>

#include "formats/folder/plan.hpp"

namespace tenfold::detail::formats::folder {

/// How a folder that exists is changed into the one that was planned.
struct UpdateRequest {
  /// True: files are written over where they are, as tensordict does, and none is removed. False:
  /// each file is replaced in one step, and those that only the old metadata named are removed.
  bool in_place = false;
  bool zeros = false;  ///< sparse zeros instead of the leaves' bytes; existing files keep theirs
  bool durable = false;
  int num_threads = 0;
  Monitor* monitor = nullptr;
  /// True for a leaf whose bytes are in that file already, because it is mapped from there.
  std::function<bool(const Plan::File& file, const std::string& path)> is_kept{};
};

/// Makes the folder at `path` what the plan says, tensors first and metadata last, so that a reader
/// finds every tensor that metadata names. Makes missing folders; refuses to write through symlinks
/// (Error(io), ELOOP).
void update_folder(const Plan& plan, const Path& path, const UpdateRequest& request);

/// The first file of a leaf that exists already at `path`, or "".
std::string first_existing_leaf(const Plan& plan, const Path& path);

}  // namespace tenfold::detail::formats::folder
