#include "formats/folder/append/growing_sums.hpp"

#include <algorithm>

namespace tenfold::detail::formats::folder {
namespace {

using base::kChecksumBlockBytes;

constexpr std::uint64_t kSummedPieceBytes = std::uint64_t{1} << 20;

}  // namespace

LeafSums::LeafSums(std::uint64_t covered_bytes, std::uint64_t size_bytes, const os::File& file) {
  const std::uint64_t known = std::min(covered_bytes, size_bytes);
  stored_bytes_ = known - known % kChecksumBlockBytes;
  std::vector<std::byte> piece;
  for (std::uint64_t at = stored_bytes_; at < size_bytes; at += piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min(kSummedPieceBytes, size_bytes - at)));
    file.read_at(at, piece);
    add(piece);
  }
}

bool LeafSums::add_lines(const std::string& path, const std::vector<ChecksumLine>& before,
                         std::vector<ChecksumLine>& lines) const {
  std::vector<ChecksumLine> stored;
  for (const ChecksumLine& line : before) {
    if (line.offset_bytes < stored_bytes_) stored.push_back(line);
  }
  if (covered_bytes(stored) != stored_bytes_) return false;
  lines.insert(lines.end(), stored.begin(), stored.end());
  append_lines(lines, path, stored_bytes_ + sums_.size_bytes(), sums_.checksums(), stored_bytes_);
  return true;
}

std::optional<std::uint64_t> covered_bytes(const std::vector<ChecksumLine>& lines) {
  std::uint64_t end = 0;
  for (const ChecksumLine& line : lines) {
    const bool follows = !line.box && line.offset_bytes == end && end % kChecksumBlockBytes == 0 &&
                         line.size_bytes <= kChecksumBlockBytes;
    if (!follows) return std::nullopt;
    end += line.size_bytes;
  }
  return end;
}

void add_lines_of(const os::File& file, const std::string& path, std::vector<ChecksumLine>& lines) {
  const LeafSums sums(0, file.size_bytes(), file);
  sums.add_lines(path, {}, lines);
}

}  // namespace tenfold::detail::formats::folder
