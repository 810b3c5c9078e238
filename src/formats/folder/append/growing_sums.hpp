#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash/checksum.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::folder {

/// The checksums of a file that is appended to. The checksums of whole blocks are final. Appended
/// bytes continue the hash of the last block.
class LeafSums {
 public:
  /// `file` has the committed size `size_bytes`. `%checksums` covers its first `covered_bytes`.
  /// Reads the committed bytes after the last whole block that `%checksums` covers.
  LeafSums(std::uint64_t covered_bytes, std::uint64_t size_bytes, const os::File& file);

  /// Adds bytes that were appended to the file.
  void add(std::span<const std::byte> bytes) { sums_.add(bytes); }

  /// Appends the lines of this file to `lines`: those of final blocks, copied from `before` (the
  /// lines of this file in `%checksums`), then the new ones. Returns false, and appends nothing, if
  /// `before` lacks the line of a final block.
  bool add_lines(const std::string& path, const std::vector<ChecksumLine>& before,
                 std::vector<ChecksumLine>& lines) const;
  /// Call this after the lines of add_lines() are in `%checksums`: new whole blocks become final.
  void published() { stored_bytes_ += sums_.drop_whole_blocks(); }

 private:
  std::uint64_t stored_bytes_;  ///< size of the whole blocks in `%checksums`
  base::BlockSums sums_;        ///< of the bytes after the first `stored_bytes_`
};

/// Returns the number of bytes that the lines of a file cover; 0 if there are no lines. Returns
/// nullopt unless the lines are of consecutive blocks from the start of the file, all of
/// kChecksumBlockBytes bytes except the last, which may be shorter. Also returns nullopt if a line
/// is for a box (formats/shared/boxes.hpp).
std::optional<std::uint64_t> covered_bytes(const std::vector<ChecksumLine>& lines);

/// Reads the file, and adds the checksums of its current content to `lines`.
void add_lines_of(const os::File& file, const std::string& path, std::vector<ChecksumLine>& lines);

}  // namespace tenfold::detail::formats::folder
