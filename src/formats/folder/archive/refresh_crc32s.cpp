#include "formats/folder/archive/refresh_crc32s.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "codecs/zip/records.hpp"
#include "codecs/zip/structure.hpp"
#include "codecs/zip/zip.hpp"
#include "formats/folder/keys.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/zip_check.hpp"

namespace tenfold::detail::formats::folder {
namespace {

/// Writes a CRC-32 at `offset` in the file, unless the file has it there already. Returns true if
/// it wrote.
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

void refresh_crc32s(os::File& file, const Archive& archive, std::span<const std::size_t> numbers,
                    const RefreshOptions& options) {
  std::vector<const codecs::ZipEntry*> entries;
  std::uint64_t total_bytes = 0;
  for (const std::size_t number : numbers) {
    entries.push_back(&archive.entries()[number]);
    total_bytes += entries.back()->stored_bytes;
  }
  Progress progress(options.monitor, total_bytes, "checksums");
  const std::vector<std::uint32_t> crcs =
      stored_crc32s(file, entries, options.num_threads, progress);
  progress.poll();  // the last point at which the call can be cancelled
  bool changed = false;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    changed |= patch(file, entries[i]->header_offset + codecs::kLocalCrcAt, crcs[i]);
    changed |= patch(file, entries[i]->central_offset + codecs::kCentralCrcAt, crcs[i]);
  }
  progress.finish();
  if (changed && options.durable) file.sync();
}

void refresh_structure_checksum(os::File& file, const Archive& archive) {
  const auto comment = codecs::corrected_zip_comment(archive.input(), archive.directory());
  if (!comment) return;
  file.write_at(archive.info().size_bytes - comment->size(), std::as_bytes(std::span(*comment)));
  file.sync();
}

void drop_leaf_checksums(os::File& file, const Archive& archive) {
  const auto number = archive.find(kChecksumsName);
  if (!number) return;
  const codecs::ZipEntry& entry = archive.entries()[*number];
  const std::string where = file.display() + "/" + entry.name;
  if (entry.method != codecs::ZipMethod::stored || entry.has_descriptor ||
      entry.size_bytes > kMaxChecksumsBytes) {
    throw base::unsupported(where)
        .problem("mode \"r+\" cannot disable the checksums of tensors")
        .expected("a stored entry without a data descriptor, of at most ", kMaxChecksumsBytes,
                  " bytes")
        .found("another kind of entry")
        .remedy("pack the folder again");
  }
  std::string text(static_cast<std::size_t>(entry.size_bytes), '\0');
  file.read_at(entry.data_offset, std::as_writable_bytes(std::span(text)));
  try {
    if (!silence_lines(text, where, [](std::string_view path) { return !is_metadata(path); })) {
      return;
    }
  } catch (const Error& error) {
    // A damaged `%checksums` has no valid checksums to disable; verify() reports the damage.
    if (error.code() != ErrorCode::corrupt) throw;
    return;
  }
  file.write_at(entry.data_offset, std::as_bytes(std::span(text)));
  refresh_crc32s(file, archive, std::span(&*number, 1), {.durable = true});
}

}  // namespace tenfold::detail::formats::folder
