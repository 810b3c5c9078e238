#include "formats/shared/zip_archive.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/buffer.hpp>

#include "base/hash/checksum.hpp"
#include "codecs/zip/deflate.hpp"
#include "codecs/zip/zip.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::detail::formats {
namespace {

std::uint64_t size_of(const ZipArchiveEntry& entry) {
  return entry.head.size() + (entry.leaf ? entry.leaf->nbytes() : entry.zero_bytes);
}

codecs::ZipItem item_of(const ZipArchiveEntry& entry) {
  codecs::ZipItem item;
  item.name = entry.name;
  item.size_bytes = item.stored_bytes = size_of(entry);
  item.alignment = entry.alignment;
  item.comment = entry.comment;
  return item;
}

codecs::ZipLayout layout_of(const std::vector<ZipArchiveEntry>& entries) {
  std::vector<codecs::ZipItem> items;
  items.reserve(entries.size());
  for (const ZipArchiveEntry& entry : entries) items.push_back(item_of(entry));
  return codecs::ZipLayout(std::move(items));
}

/// Returns the CRC-32 of an entry, combined from the CRC-32s of its head and of the blocks of its
/// leaf, or of its zeros.
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

/// State that the LeafWrite::head functions of an archive share.
struct Archive {
  const std::vector<ZipArchiveEntry>& entries;
  codecs::ZipLayout layout;
  std::vector<std::uint32_t> crc32s;
};

/// Limit of the total size of entries that are deflated concurrently, before they are written
/// sequentially. A larger entry is deflated by itself.
constexpr std::uint64_t kWindowBytes = std::uint64_t{64} << 20;
constexpr std::size_t kWindowEntries = 256;
constexpr std::size_t kScratchBytes = std::size_t{1} << 20;

/// The bytes of an entry to be written, and their deflated form if it is smaller.
struct Packed {
  Buffer gathered;  ///< owns `bytes` if they were copied into one buffer
  std::span<const std::byte> bytes;
  codecs::Deflated deflated;
  std::uint32_t crc32 = 0;
};

/// Sets packed.bytes to the head and the leaf of the entry. Copies them to one buffer, unless one
/// of them is empty and the other is contiguous in memory.
void gather(const ZipArchiveEntry& entry, Packed& packed) {
  if (!entry.leaf || entry.leaf->nbytes() == 0) {
    packed.bytes = std::as_bytes(std::span(entry.head));
    return;
  }
  const auto leaf_bytes = static_cast<std::size_t>(entry.leaf->nbytes());
  const Tensor* tensor = entry.leaf->tensor_in_memory();
  if (entry.head.empty() && tensor != nullptr && tensor->is_contiguous()) {
    packed.bytes = {tensor->raw_data(), leaf_bytes};
    return;
  }
  packed.gathered = Buffer::allocate(entry.head.size() + leaf_bytes);
  std::byte* at = packed.gathered.mutable_data();
  if (!entry.head.empty()) std::memcpy(at, entry.head.data(), entry.head.size());
  at += entry.head.size();
  std::vector<std::byte> scratch(kScratchBytes);
  for_each_piece(*entry.leaf, 0, leaf_bytes, scratch, [&](std::span<const std::byte> piece) {
    std::memcpy(at, piece.data(), piece.size());
    at += piece.size();
  });
  packed.bytes = packed.gathered.bytes();
}

Packed pack(const ZipArchiveEntry& entry) {
  Packed packed;
  gather(entry, packed);
  packed.crc32 = codecs::crc32(packed.bytes);
  if (!entry.leaf && entry.zero_bytes > 0) {
    packed.crc32 = codecs::crc32_combine(packed.crc32, codecs::crc32_of_zeros(entry.zero_bytes),
                                         entry.zero_bytes);
  } else if (entry.deflate_level > 0) {
    packed.deflated = codecs::deflate(packed.bytes, entry.deflate_level);
    if (packed.deflated.size_bytes > 0) packed.gathered = {};
  }
  return packed;
}

/// Returns the item of an entry: deflated if that made the entry smaller, otherwise stored.
codecs::ZipItem packed_item(const ZipArchiveEntry& entry, const Packed& packed) {
  codecs::ZipItem item = item_of(entry);
  if (packed.deflated.size_bytes > 0) {
    item.method = codecs::ZipMethod::deflated;
    item.stored_bytes = packed.deflated.size_bytes;
    item.alignment = 1;
  }
  return item;
}

std::size_t end_of_window(const std::vector<ZipArchiveEntry>& entries, std::size_t begin) {
  std::uint64_t bytes = 0;
  std::size_t end = begin;
  while (end < entries.size() && end - begin < kWindowEntries &&
         (end == begin || bytes + size_of(entries[end]) <= kWindowBytes)) {
    bytes += size_of(entries[end++]);
  }
  return end;
}

/// Writes an archive of which at least one entry is to be deflated. One thread deflates a whole
/// entry, which needs memory for the entry and the result. Up to 256 consecutive entries of up to
/// 64 MiB in total are deflated concurrently; a larger entry is deflated by itself. Entries that
/// would not become smaller, or whose deflate_level is 0, are stored.
void write_deflated_archive(os::File& file, const std::vector<ZipArchiveEntry>& entries,
                            const WriteRequest& request, Progress& progress) {
  codecs::ZipLayout layout;
  std::vector<std::uint32_t> crc32s;
  const int num_threads = os::num_threads_for(request.num_threads);
  for (std::size_t begin = 0; begin < entries.size();) {
    const std::size_t end = end_of_window(entries, begin);
    std::vector<Packed> window(end - begin);
    os::parallel_for(
        window.size(), num_threads,
        [&](std::size_t i) {
          const ZipArchiveEntry& entry = entries[begin + i];
          window[i] = pack(entry);
          if (entry.leaf) progress.add(entry.leaf->nbytes());
        },
        [&] { progress.poll(); });
    for (std::size_t i = 0; i < window.size(); ++i) {
      const Packed& packed = window[i];
      layout.add(packed_item(entries[begin + i], packed));
      crc32s.push_back(packed.crc32);
      const std::size_t number = begin + i;
      const std::string header = layout.local_header(number, packed.crc32);
      const std::uint64_t data = layout.data_offset(number);
      file.write_at(data - header.size(), std::as_bytes(std::span(header)));
      const bool deflated = packed.deflated.size_bytes > 0;
      const auto bytes = deflated ? packed.deflated.bytes() : packed.bytes;
      if (!bytes.empty()) file.write_at(data, bytes);
    }
    if (request.durable) file.start_writeback();
    begin = end;
  }
  const std::string directory = layout.directory(crc32s);
  file.write_at(layout.directory_offset(), std::as_bytes(std::span(directory)));
}

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
