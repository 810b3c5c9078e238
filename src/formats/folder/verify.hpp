#pragma once

#include <memory>

#include "formats/folder/files.hpp"
#include "formats/format.hpp"

namespace tenfold::detail::formats::folder {

/// Visits the whole tree in `root`, or only what the request's filter selects, and checks the size
/// of the file of each visited leaf. Adds problems, and the numbers of leaves and bytes, to
/// `report`. Throws any error for which is_problem_of_files() is false.
void check_tree(std::shared_ptr<Folder> root, const VerifyRequest& request, VerifyReport& report);

/// Checks the tree like check_tree(), and every block and box in `%checksums`, except what the
/// request's filter skips. Returns damage as problems. Throws an error if the folder cannot be
/// opened, and any error for which is_problem_of_files() is false.
VerifyReport verify_folder(const Path& path, const VerifyRequest& request);

/// Checks the tree like check_tree(), the structure of the zip archive, the CRC-32 of every entry,
/// and the blocks in `%checksums`, except what the request's filter skips. Skips boxes (boxes.hpp),
/// because the CRC-32 covers their bytes. Returns damage as problems. Throws Error(file_not_found)
/// if there is no file, and any error for which is_problem_of_files() is false.
VerifyReport verify_archive(const Path& path, const VerifyRequest& request);

}  // namespace tenfold::detail::formats::folder
