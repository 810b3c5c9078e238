#pragma once

#include <memory>

#include "formats/memmap_archive.hpp"
#include "formats/memmap_files.hpp"

namespace tenfold::memmap_folder {

/// The root of the tree that an archive holds.
std::shared_ptr<Folder> root_of(std::shared_ptr<Archive> archive);

}  // namespace tenfold::memmap_folder
