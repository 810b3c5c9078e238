#pragma once

#include <tenfold/io.hpp>

#include "formats/format.hpp"

namespace tenfold {

/// Verifies the tree at `path` or, if `keys` or `exclude` is given, its metadata and the part that
/// they select. Throws Error(corrupt) for damage.
void require_intact(const detail::formats::Format& format, const Path& path, const Keys& keys,
                    const Keys& exclude, detail::formats::VerifyRequest request);

}  // namespace tenfold
