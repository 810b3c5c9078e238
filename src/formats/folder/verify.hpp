#pragma once

#include <memory>

#include "formats/folder/files.hpp"
#include "formats/format.hpp"

namespace tenfold::detail::formats::folder {

/// Enters every node below `root` and checks the size of every leaf's file. Adds what is wrong to
/// `report`, and counts leaves and bytes.
void check_tree(std::shared_ptr<Folder> root, const VerifyRequest& request, VerifyReport& report);

/// The structure and every block that `%checksums` names; what is wrong is reported, not thrown.
VerifyReport verify_folder(const Path& path, const VerifyRequest& request);

/// The structure, the CRC-32 of every entry, and every block that `%checksums` names.
VerifyReport verify_archive(const Path& path, const VerifyRequest& request);

}  // namespace tenfold::detail::formats::folder
