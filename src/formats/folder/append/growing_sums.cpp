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
  end_ = stored_bytes_;
  std::vector<std::byte> piece;
  while (end_ < size_bytes) {
    piece.resize(static_cast<std::size_t>(std::min(kSummedPieceBytes, size_bytes - end_)));
    file.read_at(end_, piece);
    add(piece);
  }
}

void LeafSums::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t room = kChecksumBlockBytes - end_ % kChecksumBlockBytes;
    const auto some =
        bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(room, bytes.size())));
    last_.update(some);
    end_ += some.size();
    bytes = bytes.subspan(some.size());
    if (end_ % kChecksumBlockBytes != 0) continue;
    whole_.push_back({end_ - kChecksumBlockBytes, last_.digest()});
    last_.reset();
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
  for (const Block& block : whole_) {
    lines.push_back({block.checksum, block.offset_bytes, kChecksumBlockBytes, path});
  }
  const std::uint64_t rest = end_ % kChecksumBlockBytes;
  if (rest > 0) lines.push_back({last_.digest(), end_ - rest, rest, path});
  return true;
}

void LeafSums::published() {
  whole_.clear();
  stored_bytes_ = end_ - end_ % kChecksumBlockBytes;
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
