#include "formats/shared/zip_check.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>

#include <tenfold/error.hpp>

#include "base/hash/checksum.hpp"
#include "codecs/zip/crc.hpp"
#include "codecs/zip/structure.hpp"
#include "formats/shared/problem.hpp"
#include "os/fs/holes.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::detail::formats {
namespace {

using codecs::ZipEntry;
using Entries = std::span<const ZipEntry* const>;

constexpr std::uint64_t kZipBlockBytes = base::kChecksumBlockBytes;
constexpr std::size_t kZipPieceBytes = std::size_t{1} << 20;

/// A block of a stored entry, or a whole deflated one.
struct Block {
  std::size_t entry = 0;
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32 = 0;
  std::exception_ptr error = nullptr;
};

std::vector<Block> blocks_of(Entries entries) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::uint64_t size_bytes = entries[i]->stored_bytes;
    const bool whole = entries[i]->method == codecs::ZipMethod::deflated || size_bytes == 0;
    const std::uint64_t step = whole ? std::max<std::uint64_t>(size_bytes, 1) : kZipBlockBytes;
    std::uint64_t begin = 0;
    do {
      blocks.push_back({i, begin, std::min(step, size_bytes - begin)});
      begin += step;
    } while (begin < size_bytes);
  }
  return blocks;
}

using Read = std::function<void(std::uint64_t offset_bytes, std::span<std::byte> into)>;

/// Returns `crc` continued with the bytes [begin, end), which `read` reads.
std::uint32_t crc32_of(const Read& read, std::uint64_t begin, std::uint64_t end, std::uint32_t crc,
                       std::vector<std::byte>& scratch) {
  const std::uint64_t most = std::min<std::uint64_t>(kZipPieceBytes, end - begin);
  if (scratch.size() < most) scratch.resize(static_cast<std::size_t>(most));
  while (begin < end) {
    const auto count =
        static_cast<std::size_t>(std::min<std::uint64_t>(scratch.size(), end - begin));
    const auto piece = std::span(scratch).first(count);
    read(begin, piece);
    crc = codecs::crc32(piece, crc);
    begin += count;
  }
  return crc;
}

/// The CRC-32 of [begin, end), without reading holes, which are zeros.
std::uint32_t crc32_with_holes(const os::File& file, std::uint64_t begin, std::uint64_t end,
                               std::vector<std::byte>& scratch) {
  const Read read = [&](std::uint64_t offset, std::span<std::byte> into) {
    file.read_at(offset, into);
  };
  std::uint32_t crc = 0;
  while (begin < end) {
    const std::uint64_t data = std::min(os::next_data(file, begin), end);
    if (data > begin) {
      crc = codecs::crc32_combine(crc, codecs::crc32_of_zeros(data - begin), data - begin);
    }
    const std::uint64_t hole = os::next_hole(file, data);
    // If the file was truncated concurrently, there is no hole after `begin`, and crc32_of()
    // throws.
    begin = hole > begin ? std::min(hole, end) : end;
    crc = crc32_of(read, data, begin, crc, scratch);
  }
  return crc;
}

/// Calls use(entry, crc32, error) for each entry. `error` is the first exception that the check of
/// one of its blocks threw, or null. `crc32` is combined from its blocks. It is valid only for a
/// stored entry without an error, because the check of a deflated entry compares the CRC-32 itself.
template <class Use>
void for_each_entry(const std::vector<Block>& blocks, const Use& use) {
  for (std::size_t i = 0; i < blocks.size();) {
    const std::size_t entry = blocks[i].entry;
    std::uint32_t crc = 0;
    std::exception_ptr error;
    for (; i < blocks.size() && blocks[i].entry == entry; ++i) {
      crc = codecs::crc32_combine(crc, blocks[i].crc32, blocks[i].size_bytes);
      if (!error) error = blocks[i].error;
    }
    use(entry, crc, error);
  }
}

/// Returns, for each entry, the exception that codecs::check_zip_entry() would throw; null for a
/// valid entry.
std::vector<std::exception_ptr> check_zip_entries(const codecs::ZipInput& input, Entries entries,
                                                  int num_threads, Progress& progress) {
  std::vector<Block> blocks = blocks_of(entries);
  const auto check = [&](Block& block) {
    const ZipEntry& entry = *entries[block.entry];
    if (entry.method == codecs::ZipMethod::deflated) return codecs::check_zip_entry(input, entry);
    std::vector<std::byte> scratch;
    const std::uint64_t begin = entry.data_offset + block.begin;
    block.crc32 = crc32_of(input.read, begin, begin + block.size_bytes, 0, scratch);
  };
  os::parallel_for(
      blocks.size(), os::num_threads_for(num_threads),
      [&](std::size_t i) {
        try {
          check(blocks[i]);
        } catch (...) {
          blocks[i].error = std::current_exception();
        }
        progress.add(blocks[i].size_bytes);
      },
      [&] { progress.poll(); });
  std::vector<std::exception_ptr> errors(entries.size());
  for_each_entry(blocks, [&](std::size_t i, std::uint32_t crc, std::exception_ptr error) {
    if (!error && entries[i]->method == codecs::ZipMethod::stored) {
      try {
        codecs::require_crc32(input, *entries[i], crc);
      } catch (...) {
        error = std::current_exception();
      }
    }
    errors[i] = std::move(error);
  });
  return errors;
}

}  // namespace

std::vector<std::uint32_t> stored_crc32s(const os::File& file, Entries entries, int num_threads,
                                         Progress& progress) {
  std::vector<Block> blocks = blocks_of(entries);
  os::parallel_for(
      blocks.size(), os::num_threads_for(num_threads),
      [&](std::size_t i) {
        Block& block = blocks[i];
        const std::uint64_t begin = entries[block.entry]->data_offset + block.begin;
        std::vector<std::byte> scratch;
        block.crc32 = crc32_with_holes(file, begin, begin + block.size_bytes, scratch);
        progress.add(block.size_bytes);
      },
      [&] { progress.poll(); });
  std::vector<std::uint32_t> found(entries.size());
  for_each_entry(blocks, [&](std::size_t entry, std::uint32_t crc, const std::exception_ptr&) {
    found[entry] = crc;
  });
  return found;
}

void verify_zip(const codecs::ZipInput& input, const codecs::ZipDirectory& directory,
                const ZipUse& entries, int num_threads, Progress& progress, VerifyReport& report) {
  const auto add = [&](const Error& error, const base::Where& where) {
    if (!is_problem_of_files(error)) throw error;
    report.problems.push_back(problem_of(error, where));
  };
  try {
    codecs::check_zip_structure(input, directory, "save it again");
  } catch (const Error& error) {
    add(error, {input.where.path, "archive"});
  }
  std::vector<const ZipEntry*> wanted;
  for (const ZipEntry& entry : directory.entries) {
    if (entries.is_wanted(entry)) wanted.push_back(&entry);
  }
  const auto errors = check_zip_entries(input, wanted, num_threads, progress);
  report.num_checksums += wanted.size();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    try {
      if (errors[i]) std::rethrow_exception(errors[i]);
      if (entries.use) entries.use(*wanted[i]);
    } catch (const Error& error) {
      add(error, entries.where(*wanted[i]));
    }
  }
}

}  // namespace tenfold::detail::formats
