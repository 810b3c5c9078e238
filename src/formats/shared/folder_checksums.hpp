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

/// A line of the file `%checksums` in the root of a saved tree. Each file of the tree except
/// `%checksums` and `%commit` has this line for each of its blocks of 16 MiB:
///
///   <XXH3 of the block, 16 hexadecimal digits> <offset> <length> <path>
///
/// The last block of a file may be shorter. In a file of a snapshot, each tensor begins a new
/// block. The offset and the length are decimal. The path is relative to the root, has "/" between
/// its components, and extends to the end of the line. A tensor that several processes wrote has a
/// line for each box (boxes.hpp) instead. A box whose bytes are contiguous has a line like that of
/// a block; any other box has the line
///
///   <XXH3 of the box> box <shape> <offsets> <sizes> <path>
///
/// For this line, the file is an array of bytes of `<shape>`. Shape, offsets and sizes are
/// comma-separated lists of numbers; the last number of each list is in bytes.
///
/// The last line is `xxh3 <XXH3 of all bytes before this line>`. When a folder is opened "r+", the
/// lines of its tensors are removed first, because the tensors may change. In an archive that is
/// opened "r+", `#` replaces the first digit of each such line, because the entries of an archive
/// cannot shrink.
struct ChecksumLine {
  std::uint64_t checksum = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;  ///< of a box: from its first byte to its last
  std::string path;
  std::shared_ptr<const ByteBox> box = {};  ///< null for a block
};

/// Maximum size of a `%checksums`; a larger file is refused before it is read.
inline constexpr std::uint64_t kMaxChecksumsBytes = std::uint64_t{1} << 30;

/// Maps a leaf, which the text of LeafSource::where() identifies, to the checksums of its blocks,
/// in order.
using ChecksumsByLeaf = std::map<std::string, std::vector<std::uint64_t>>;

/// Returns the text of a `%checksums` with these lines, followed by the last line.
std::string checksums_text(const std::vector<ChecksumLine>& lines);

/// Appends a line for each block of a file of `size_bytes` bytes, beginning with the block at
/// `offset_bytes`. `checksums` has one element for each of these blocks.
void append_lines(std::vector<ChecksumLine>& lines, const std::string& path,
                  std::uint64_t size_bytes, std::span<const std::uint64_t> checksums,
                  std::uint64_t offset_bytes = 0);

ChecksumLine line_of_box(std::uint64_t checksum, ByteBox box, const std::string& path);

/// Parses the text of a `%checksums`. Returns its lines without the last one and without disabled
/// ones (silence_lines()). Throws Error(corrupt), naming `where` and the line, for damage and for
/// paths that lead out of the folder.
std::vector<ChecksumLine> parse_checksums(std::string_view text, const std::string& where);

/// Disables the lines for whose paths `concerns` returns true: replaces their first character by
/// `#`, and updates the checksum in the last line. The text keeps its length. Returns false if no
/// line was disabled. Throws like parse_checksums().
bool silence_lines(std::string& text, const std::string& where,
                   const std::function<bool(std::string_view path)>& concerns);

}  // namespace tenfold::detail::formats
