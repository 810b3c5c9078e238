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

/// The checksums of a file that grows at its end: those of whole blocks stand, that of the last
/// block goes on.
class LeafSums {
 public:
  /// `%checksums` covers `covered_bytes` of the first `size_bytes` of `file`; what it does not, or
  /// only as a part of a block, is read.
  LeafSums(std::uint64_t covered_bytes, std::uint64_t size_bytes, const os::File& file);

  /// `bytes` were added to the file.
  void add(std::span<const std::byte> bytes);

  /// Adds the file's lines to `lines`: of those that `%checksums` has `before` the ones that stand,
  /// and the new ones. False, with nothing added, if one is missing that should stand.
  bool add_lines(const std::string& path, const std::vector<ChecksumLine>& before,
                 std::vector<ChecksumLine>& lines) const;
  /// The lines are in the file.
  void published();

 private:
  struct Block {
    std::uint64_t offset_bytes;
    std::uint64_t checksum;
  };
  std::uint64_t standing_bytes_;  ///< whole blocks that `%checksums` has
  std::uint64_t end_;             ///< of what is summed up
  std::vector<Block> whole_;      ///< blocks it has not yet
  base::Xxh3Stream last_;
};

/// What lines of one file cover from its start on without a gap, block by block; nothing if they
/// are others than a save or a flush writes.
std::optional<std::uint64_t> covered_bytes(const std::vector<ChecksumLine>& lines);

/// Adds the lines of a file as it is now.
void add_lines_of(const os::File& file, const std::string& path, std::vector<ChecksumLine>& lines);

}  // namespace tenfold::detail::formats::folder
