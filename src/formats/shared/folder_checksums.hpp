#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/shared/boxes.hpp"

namespace tenfold::detail::formats {

inline constexpr std::string_view kChecksumsName = "%checksums";

/// The file `%checksums` in the root of a saved tree. One line for each block of 16 MiB of each
/// file, or of each tensor in it, the last block being shorter:
///
///   <XXH3 of the block, 16 hexadecimal digits> <offset> <length> <path>
///
/// numbers in decimal, the path relative to the root with "/" between its parts and up to the end
/// of the line. Of a tensor that several processes wrote, a line for each box (boxes.hpp) whose
/// bytes do not lie end to end:
///
///   <XXH3 of the box> box <shape> <offsets> <sizes> <path>
///
/// with commas between the numbers, all in bytes: the file is an array of bytes of that shape.
///  The last line is `xxh3 <XXH3 of all bytes before this line>`. Tensors of a
/// memmap folder that are opened "r+" lose their lines first; what may change is not vouched for.
/// In an archive, where nothing can become shorter, `#` takes the place of such a line's first
/// digit.
struct ChecksumLine {
  std::uint64_t checksum = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;  ///< of a box: from its first byte to its last
  std::string path;
  std::shared_ptr<const ByteBox> box = {};  ///< null for a block
};

/// A `%checksums` larger than this is refused before it is read.
inline constexpr std::uint64_t kMaxChecksumsBytes = std::uint64_t{1} << 30;

/// The checksums of the blocks of each leaf, in their order; by LeafSource::where().
using ChecksumsByLeaf = std::map<std::string, std::vector<std::uint64_t>>;

std::string checksums_text(const std::vector<ChecksumLine>& lines);

/// Appends a line for each block of a file of that size; `checksums` has one for each.
void append_lines(std::vector<ChecksumLine>& lines, const std::string& path,
                  std::uint64_t size_bytes, std::span<const std::uint64_t> checksums);

/// The line of a box of a file.
ChecksumLine line_of_box(std::uint64_t checksum, ByteBox box, const std::string& path);

/// Throws Error(corrupt), naming `where` and the line, for damage and for paths that lead out of
/// the folder.
std::vector<ChecksumLine> parse_checksums(std::string_view text, const std::string& where);

/// Puts `#` before the lines of the paths that `concerns` names; the text keeps its length. False
/// if there were none. Throws as parse_checksums().
bool silence_lines(std::string& text, const std::string& where,
                   const std::function<bool(std::string_view path)>& concerns);

}  // namespace tenfold::detail::formats
