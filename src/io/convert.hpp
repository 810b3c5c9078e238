#pragma once

#include <string>

#include <tenfold/io.hpp>

#include "formats/format.hpp"

namespace tenfold {

/// The format that convert() writes `target` in. Warns of a suffix that is almost a format's.
/// Throws Error(invalid_argument) for a shard size that the format does not have.
const detail::formats::Format& format_for_converting(const Path& target,
                                                     const ConvertOptions& options);

/// convert() of a tree that is open and selected already: casts, renames and writes it. `source`
/// names it in messages.
ConvertReport convert_tree(TensorDict tree, const std::string& source,
                           const detail::formats::Format& format, const Path& target,
                           const ConvertOptions& options);

/// Throws Error(invalid_argument) if `target` lies inside the folder `source`.
void refuse_inside(const Path& source, const Path& target);

}  // namespace tenfold
