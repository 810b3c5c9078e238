#pragma once

#include <memory>

#include "formats/folder/archive/archive.hpp"
#include "formats/folder/files.hpp"

namespace tenfold::detail::formats::folder {

/// Returns the root folder of the tree in an archive.
std::shared_ptr<Folder> root_of(std::shared_ptr<Archive> archive);

}  // namespace tenfold::detail::formats::folder
