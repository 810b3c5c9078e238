#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/directory.hpp"

namespace tenfold::memmap_folder {

/// The file `%checksums` in the root of a saved tree. One line for each block of 16 MiB of each
/// file, the last block of a file being shorter:
///
///   <XXH3 of the block, 16 hexadecimal digits> <offset> <length> <path>
///
/// numbers in decimal, the path relative to the root with "/" between its parts and up to the end
/// of the line. The last line is `xxh3 <XXH3 of all bytes before this line>`. Tensors that are
/// opened "r+" lose their lines first; what may change is not vouched for.
struct ChecksumLine {
  std::uint64_t checksum = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::string path;
};

/// A `%checksums` larger than this is refused before it is read.
inline constexpr std::uint64_t kMaxChecksumsBytes = std::uint64_t{1} << 30;

std::string checksums_text(const std::vector<ChecksumLine>& lines);

/// Appends a line for each block of a file of that size; `checksums` has one for each.
void append_lines(std::vector<ChecksumLine>& lines, const std::string& path,
                  std::uint64_t size_bytes, std::span<const std::uint64_t> checksums);

/// Throws Error(corrupt), naming `where` and the line, for damage and for paths that lead out of
/// the folder.
std::vector<ChecksumLine> parse_checksums(std::string_view text, const std::string& where);

/// Removes the lines of all tensors from the `%checksums` of the folder at `path`, if it has any:
/// their files are about to be written through. The file is replaced in one step, durably.
void drop_leaf_checksums(const os::Directory& folder, const os::Path& path);

}  // namespace tenfold::memmap_folder
