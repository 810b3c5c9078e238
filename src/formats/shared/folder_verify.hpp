#pragma once

#include <string>

#include <tenfold/io.hpp>

#include "formats/format.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats {

/// Opens the file at the relative path `path` ("a/b/c") below `root` for reading. Throws
/// Error(file_not_found), Error(io), and Error(corrupt) if a component is a symbolic link or has
/// the wrong type.
os::File open_below(const os::Directory& root, std::string_view path);
/// Like open_below(), for reading and writing.
os::File open_below_to_write(const os::Directory& root, std::string_view path);

/// Checks in parallel the blocks and boxes that the folder's `%checksums` lists, except those that
/// the request skips. Adds problems to `report`, and sets report.num_checksums to the number of
/// lines. Does nothing if `%checksums` is missing. `is_growing`: files may be longer than what
/// their checksums cover. Throws any error for which is_problem_of_files() is false.
void check_folder_checksums(const os::Directory& root, const VerifyRequest& request,
                            VerifyReport& report, bool is_growing = false);

}  // namespace tenfold::detail::formats
