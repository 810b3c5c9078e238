#include "codecs/zip/structure.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "codecs/zip/records.hpp"

namespace tenfold::codecs {
namespace {

constexpr std::string_view kFirstWord = "tenfold_xxh3 ";

/// Hash of an archive's bytes in which the CRC-32s are replaced by zeros.
class StructureHash {
 public:
  explicit StructureHash(const ZipInput& input) : input_(input) {}

  /// Adds the bytes [begin, end) of the archive. `crcs`: the offsets in the archive of all CRC-32s
  /// in this range, in ascending order.
  void add(std::uint64_t begin, std::uint64_t end, std::span<const std::uint64_t> crcs) {
    while (begin < end) {
      const auto count =
          static_cast<std::size_t>(std::min<std::uint64_t>(end - begin, memory_.size()));
      const auto piece = std::span(memory_).first(count);
      input_.read(begin, piece);
      while (!crcs.empty() && crcs.front() + kCrcBytes <= begin) crcs = crcs.subspan(1);
      for (const std::uint64_t crc : crcs) {
        if (crc >= begin + count) break;
        for (std::uint64_t at = std::max(crc, begin); at < std::min(crc + kCrcBytes, begin + count);
             ++at) {
          piece[static_cast<std::size_t>(at - begin)] = std::byte{0};
        }
      }
      stream_.update(piece);
      begin += count;
    }
  }

  std::uint64_t digest() const { return stream_.digest(); }

 private:
  const ZipInput& input_;
  base::Xxh3Stream stream_;
  std::array<std::byte, 16384> memory_{};
};

}  // namespace

std::string zip_structure_comment(std::uint64_t checksum) {
  return std::string(kFirstWord) + base::hex16(checksum);
}

std::uint64_t zip_structure_checksum(const ZipInput& input, const ZipDirectory& directory) {
  std::vector<const ZipEntry*> order;
  order.reserve(directory.entries.size());
  std::vector<std::uint64_t> central_crcs;
  central_crcs.reserve(directory.entries.size());
  for (const ZipEntry& entry : directory.entries) {
    order.push_back(&entry);
    central_crcs.push_back(entry.central_offset + kCentralCrcAt);
  }
  std::ranges::sort(order, {}, &ZipEntry::header_offset);
  StructureHash hash(input);
  std::uint64_t end = 0;
  for (const ZipEntry* entry : order) {
    const std::array crc = {entry->header_offset + kLocalCrcAt};
    hash.add(end, entry->data_offset, crc);
    end = entry->data_offset + entry->stored_bytes;
  }
  hash.add(end, directory.offset, {});
  hash.add(directory.offset, input.size_bytes - directory.comment.size(), central_crcs);
  return hash.digest();
}

std::optional<std::string> corrected_zip_comment(const ZipInput& input,
                                                 const ZipDirectory& directory) {
  if (directory.comment.size() != kZipStructureCommentBytes) return std::nullopt;
  std::string right = zip_structure_comment(zip_structure_checksum(input, directory));
  if (directory.comment == right) return std::nullopt;
  const std::string_view digits = std::string_view(right).substr(kFirstWord.size());
  const bool is_ours =
      directory.comment.starts_with(kFirstWord) || directory.comment.ends_with(digits);
  return is_ours ? std::optional(std::move(right)) : std::nullopt;
}

void check_zip_structure(const ZipInput& input, const ZipDirectory& directory,
                         const std::string& remedy) {
  const std::optional<std::string> right = corrected_zip_comment(input, directory);
  if (!right) return;
  throw base::corrupt(input.where)
      .part("archive")
      .problem(
          "bytes outside the entries changed since tenfold wrote them: damage, or another "
          "tool edited the archive")
      .expected("the comment ", base::quote(*right))
      .found(base::quote(directory.comment))
      .remedy("if the archive is right, ", remedy);
}

}  // namespace tenfold::codecs
