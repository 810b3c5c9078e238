#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <tenfold/buffer.hpp>

#include "codecs/zip/deflate.hpp"
#include "codecs/zip/zip.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "formats/shared/zip_archive.hpp"
#include "formats/shared/zip_archive_deflate.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::detail::formats {
namespace {

/// Limit of the total size of entries that are deflated concurrently, before they are written
/// sequentially. A larger entry is deflated by itself.
constexpr std::uint64_t kWindowBytes = std::uint64_t{64} << 20;
constexpr std::size_t kWindowEntries = 256;
constexpr std::size_t kScratchBytes = std::size_t{1} << 20;

/// A deflated or stored entry.
struct Packed {
  Buffer gathered;  ///< owns `bytes` if they had to be gathered first
  std::span<const std::byte> bytes;
  codecs::Deflated deflated;
  std::uint32_t crc32 = 0;
};

std::uint64_t size_of(const ZipArchiveEntry& entry) {
  return entry.head.size() + (entry.leaf ? entry.leaf->nbytes() : entry.zero_bytes);
}

/// Concatenates head and leaf, unless one of them is empty and the other is in memory.
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

codecs::ZipItem item_of(const ZipArchiveEntry& entry, const Packed& packed) {
  codecs::ZipItem item;
  item.name = entry.name;
  item.size_bytes = item.stored_bytes = size_of(entry);
  item.alignment = entry.alignment;
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

}  // namespace

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
      layout.add(item_of(entries[begin + i], packed));
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

}  // namespace tenfold::detail::formats
