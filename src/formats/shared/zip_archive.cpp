#include "formats/shared/zip_archive.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "base/hash/checksum.hpp"
#include "codecs/zip/zip.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/zip_archive_deflate.hpp"

namespace tenfold::detail::formats {
namespace {

codecs::ZipLayout layout_of(const std::vector<ZipArchiveEntry>& entries) {
  std::vector<codecs::ZipItem> items;
  items.reserve(entries.size());
  for (const ZipArchiveEntry& entry : entries) {
    codecs::ZipItem item;
    item.name = entry.name;
    item.size_bytes = entry.head.size() + (entry.leaf ? entry.leaf->nbytes() : entry.zero_bytes);
    item.stored_bytes = item.size_bytes;
    item.alignment = entry.alignment;
    item.comment = entry.comment;
    items.push_back(std::move(item));
  }
  return codecs::ZipLayout(std::move(items));
}

/// Returns the CRC-32 of an entry, combined from its head and the blocks of its leaf.
std::uint32_t crc_of(const ZipArchiveEntry& entry, const LeafWrite& write) {
  std::uint32_t crc = codecs::crc32(std::as_bytes(std::span(entry.head)));
  std::uint64_t rest = write.size_bytes;
  for (const std::uint64_t block : write.block_checksums) {
    const std::uint64_t size = std::min(rest, base::kChecksumBlockBytes);
    crc = codecs::crc32_combine(crc, static_cast<std::uint32_t>(block), size);
    rest -= size;
  }
  if (entry.zero_bytes > 0) {
    crc = codecs::crc32_combine(crc, codecs::crc32_of_zeros(entry.zero_bytes), entry.zero_bytes);
  }
  return crc;
}

/// State shared by the functions LeafWrite::head of an archive.
struct Archive {
  const std::vector<ZipArchiveEntry>& entries;
  codecs::ZipLayout layout;
  std::vector<std::uint32_t> crc32s;
};

}  // namespace

void write_zip_archive(os::File& file, const std::vector<ZipArchiveEntry>& entries,
                       const WriteRequest& request, Progress& progress) {
  codecs::ZipLayout layout = layout_of(entries);
  const auto is_deflated = [](const ZipArchiveEntry& entry) { return entry.deflate_level > 0; };
  if (std::ranges::any_of(entries, is_deflated)) {
    write_deflated_archive(file, entries, request, progress);
    return;
  }
  Archive archive{entries, std::move(layout), std::vector<std::uint32_t>(entries.size())};
  const Leaf none(Tensor::zeros(DType::uint8, {0}));
  std::vector<LeafWrite> writes;
  writes.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const ZipArchiveEntry& entry = entries[i];
    LeafWrite write;
    write.leaf = entry.leaf ? &*entry.leaf : &none;
    write.file = &file;
    write.file_offset_bytes = archive.layout.data_offset(i) + entry.head.size();
    write.size_bytes = write.leaf->nbytes();
    write.head = [&archive, i](const LeafWrite& written) {
      const ZipArchiveEntry& of = archive.entries[i];
      archive.crc32s[i] = crc_of(of, written);
      return archive.layout.local_header(i, archive.crc32s[i]) + of.head;
    };
    writes.push_back(std::move(write));
  }
  write_leaves(writes, BlockChecksum::crc32, request.num_threads, progress, request.durable);
  const std::string directory = archive.layout.directory(archive.crc32s);
  file.write_at(archive.layout.directory_offset(), std::as_bytes(std::span(directory)));
}

}  // namespace tenfold::detail::formats
