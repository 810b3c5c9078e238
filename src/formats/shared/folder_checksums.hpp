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

/// The file `%checksums` in the root of a saved tree. It has one line for each block of 16 MiB of
/// each file but itself and `%commit`; the last block may be shorter. In a snapshot, blocks begin
/// anew at each tensor or object in a file:
///
///   <XXH3 of the block, 16 hexadecimal digits> <offset> <length> <path>
///
/// Numbers are decimal. The path is relative to the root, separated by "/", and extends to the end
/// of the line. A tensor that several processes wrote has a line for each box (boxes.hpp) whose
/// bytes are not contiguous:
///
///   <XXH3 of the box> box <shape> <offsets> <sizes> <path>
///
/// Numbers are separated by commas, and in bytes: the file is an array of bytes of that shape.
///
/// The last line is `xxh3 <XXH3 of all bytes before this line>`. The lines of tensors are removed
/// before their folder is opened "r+", because the tensors may change. In an archive, whose entries
/// cannot shrink, `#` replaces the first digit of such a line.
struct ChecksumLine {
  std::uint64_t checksum = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;  ///< of a box: from its first byte to its last
  std::string path;
  std::shared_ptr<const ByteBox> box = {};  ///< null for a block
};

/// Maximum size of a `%checksums`; checked before reading it.
inline constexpr std::uint64_t kMaxChecksumsBytes = std::uint64_t{1} << 30;

/// The checksums of the blocks of each leaf, in order; keyed by the text of LeafSource::where().
using ChecksumsByLeaf = std::map<std::string, std::vector<std::uint64_t>>;

std::string checksums_text(const std::vector<ChecksumLine>& lines);

/// Appends a line for each block of a file of that size; `checksums` has one element per block,
/// from the one at `offset_bytes` on.
void append_lines(std::vector<ChecksumLine>& lines, const std::string& path,
                  std::uint64_t size_bytes, std::span<const std::uint64_t> checksums,
                  std::uint64_t offset_bytes = 0);

/// Returns the line for a box of a file.
ChecksumLine line_of_box(std::uint64_t checksum, ByteBox box, const std::string& path);

/// Parses the text of a `%checksums`. Throws Error(corrupt), naming `where` and the line, for
/// damage and for paths that lead out of the folder.
std::vector<ChecksumLine> parse_checksums(std::string_view text, const std::string& where);

/// Disables the lines whose paths `concerns` accepts, by writing `#` at their start, and updates
/// the last line. The text keeps its length. Returns false if there were none. Throws like
/// parse_checksums().
bool silence_lines(std::string& text, const std::string& where,
                   const std::function<bool(std::string_view path)>& concerns);

}  // namespace tenfold::detail::formats
