#pragma once

#include <string>

#include <tenfold/io.hpp>

namespace tenfold {

/// convert() of a tree that is open and selected already: casts, renames and writes it. `source`
/// names it in messages.
ConvertReport convert_tree(TensorDict tree, const std::string& source, const Path& target,
                           const ConvertOptions& options);

/// Throws Error(invalid_argument) if `target` lies inside the folder `source`.
void refuse_inside(const Path& source, const Path& target);

}  // namespace tenfold
