#include "formats/memmap_archive_refresh.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "codecs/zip.hpp"
#include "formats/folder_checksums.hpp"
#include "formats/memmap_archive.hpp"
#include "formats/memmap_keys.hpp"

namespace tenfold::memmap_folder {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
// Where a CRC-32 stands in a local header, and in one of the directory.
constexpr std::uint64_t kLocalCrcAt = 14;
constexpr std::uint64_t kCentralCrcAt = 16;

std::uint32_t crc32_of(const os::File& file, const codecs::ZipEntry& entry) {
  std::vector<std::byte> scratch(
      static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, entry.stored_bytes)));
  std::uint32_t crc = 0;
  for (std::uint64_t done = 0; done < entry.stored_bytes; done += scratch.size()) {
    const auto count = static_cast<std::size_t>(
        std::min<std::uint64_t>(scratch.size(), entry.stored_bytes - done));
    const auto piece = std::span(scratch).first(count);
    file.read_at(entry.data_offset + done, piece);
    crc = codecs::crc32(piece, crc);
  }
  return crc;
}

/// True if the header said something else.
bool patch(os::File& file, std::uint64_t offset, std::uint32_t crc) {
  std::array<std::byte, 4> wanted{};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i] = static_cast<std::byte>(crc >> (8 * i) & 0xffU);
  }
  std::array<std::byte, 4> found{};
  file.read_at(offset, found);
  if (found == wanted) return false;
  file.write_at(offset, wanted);
  return true;
}

}  // namespace

void refresh_crc32s(os::File& file, const Archive& archive, std::span<const std::size_t> entries,
                    bool durable) {
  bool changed = false;
  for (const std::size_t number : entries) {
    const codecs::ZipEntry& entry = archive.entries()[number];
    const std::uint32_t crc = crc32_of(file, entry);
    changed |= patch(file, entry.header_offset + kLocalCrcAt, crc);
    changed |= patch(file, entry.central_offset + kCentralCrcAt, crc);
  }
  if (changed && durable) file.sync();
}

void drop_leaf_checksums(os::File& file, const Archive& archive) {
  const auto number = archive.find(kChecksumsName);
  if (!number) return;
  const codecs::ZipEntry& entry = archive.entries()[*number];
  const std::string where = file.display() + "/" + entry.name;
  if (entry.method != codecs::ZipMethod::stored || entry.has_descriptor ||
      entry.size_bytes > kMaxChecksumsBytes) {
    throw Error(ErrorCode::unsupported,
                where +
                    ": mode \"r+\" cannot take back the checksums of what is written through: "
                    "expected a stored entry, found another; pack the folder again");
  }
  std::string text(static_cast<std::size_t>(entry.size_bytes), '\0');
  file.read_at(entry.data_offset, std::as_writable_bytes(std::span(text)));
  try {
    if (!silence_lines(text, where, [](std::string_view path) { return !is_metadata(path); })) {
      return;
    }
  } catch (const Error& error) {
    // Left for verify to report: nothing in it vouches for anything.
    if (error.code() != ErrorCode::corrupt) throw;
    return;
  }
  file.write_at(entry.data_offset, std::as_bytes(std::span(text)));
  refresh_crc32s(file, archive, std::span(&*number, 1), true);
}

}  // namespace tenfold::memmap_folder
