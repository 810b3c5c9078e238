#pragma once

#include <string>

#include <tenfold/error.hpp>
#include <tenfold/io.hpp>

#include "formats/format.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::detail::formats {

/// Splits a message "<path>: <part>: <what>"; uses `path` if it does not start with one.
Problem problem_of(const Error& error, const std::string& path);

/// Opens the file "a/b/c" below `root` component by component; none may be a symlink.
os::File open_below(const os::Directory& root, std::string_view path);
/// The same for reading and writing.
os::File open_below_to_write(const os::Directory& root, std::string_view path);

/// Checks every block of every file in the folder's `%checksums`, in parallel, and adds differences
/// to `report`. Does nothing if that file is missing. `is_growing`: files may be longer than what
/// their checksums cover.
void check_folder_checksums(const os::Directory& root, const VerifyRequest& request,
                            VerifyReport& report, bool is_growing = false);

}  // namespace tenfold::detail::formats
