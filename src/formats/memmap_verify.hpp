#pragma once

#include "formats/format.hpp"

namespace tenfold::memmap_folder {

/// Enters every node, checks the file of every tensor, and then every line of `%checksums`, in
/// parallel and in bounded memory. Damage is reported; Error(file_not_found) or Error(io) if there
/// is no folder at `path`.
VerifyReport verify_folder(const Path& path, const VerifyRequest& request);

}  // namespace tenfold::memmap_folder
