#include "formats/leaf_writer.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/checksum.hpp"
#include "core/leaf_bytes.hpp"
#include "os/thread_pool.hpp"

namespace tenfold {
namespace {

constexpr std::uint64_t kBlockBytes = base::kChecksumBlockBytes;
/// Hashed, then written: the second pass finds the piece in the cache.
constexpr std::size_t kPieceBytes = std::size_t{256} << 10;
/// Small runs are handed out together, so that handing out costs little.
constexpr std::uint64_t kBatchBytes = std::uint64_t{1} << 20;
constexpr std::size_t kBatchItems = 64;

/// Bytes [begin, end) of the leaf of writes[index], at most one block.
struct Run {
  std::size_t index;
  std::uint64_t begin;
  std::uint64_t end;
};

/// Consecutive runs [first, last).
struct Batch {
  std::size_t first;
  std::size_t last;
};

template <class SizeOf>
std::vector<Batch> batches_of(std::size_t count, const SizeOf& size_of) {
  std::vector<Batch> batches;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool full = batches.empty() || bytes + size_of(i) > kBatchBytes ||
                      i - batches.back().first >= kBatchItems;
    if (full) {
      batches.push_back({i, i});
      bytes = 0;
    }
    batches.back().last = i + 1;
    bytes += size_of(i);
  }
  return batches;
}

/// Memory for one piece, whose pages cost nothing until they are used.
class Scratch {
 public:
  std::span<std::byte> bytes() {
    if (!memory_) memory_ = std::make_unique_for_overwrite<std::byte[]>(kPieceBytes);
    return {memory_.get(), kPieceBytes};
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

void write_run(LeafWrite& write, const Run& run, bool checksums, Scratch& scratch,
               Progress& progress) {
  std::uint64_t position = run.begin;
  std::optional<base::Xxh3Stream> stream;
  std::uint64_t whole = 0;
  for_each_piece(*write.leaf, run.begin, run.end, scratch.bytes(),
                 [&](std::span<const std::byte> piece) {
                   if (checksums && piece.size() == run.end - run.begin) {
                     whole = base::xxh3(piece);
                   } else if (checksums) {
                     if (!stream) stream.emplace();
                     stream->update(piece);
                   }
                   write.file->write_at(write.file_offset_bytes + position, piece);
                   position += piece.size();
                   progress.add(piece.size());
                 });
  if (checksums) {
    write.block_checksums[static_cast<std::size_t>(run.begin / kBlockBytes)] =
        stream ? stream->digest() : whole;
  }
}

std::vector<Run> runs_of(std::vector<LeafWrite>& writes, bool checksums) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const std::uint64_t size = writes[i].size_bytes;
    for (std::uint64_t begin = 0; begin < size; begin += kBlockBytes) {
      runs.push_back({i, begin, std::min(begin + kBlockBytes, size)});
    }
    const std::uint64_t num_blocks = size / kBlockBytes + (size % kBlockBytes != 0 ? 1 : 0);
    writes[i].block_checksums.assign(checksums ? static_cast<std::size_t>(num_blocks) : 0, 0);
  }
  return runs;
}

/// The message without the path, which the report names apart.
std::string without_path(std::string_view message, const std::string& path) {
  const std::string prefix = path + ": ";
  if (message.starts_with(prefix)) message.remove_prefix(prefix.size());
  return std::string(message);
}

std::uint64_t checksum_through(const os::File& file, std::uint64_t offset_bytes,
                               std::uint64_t size_bytes, Scratch& scratch, Progress* progress) {
  if (size_bytes <= kPieceBytes) {
    const auto piece = scratch.bytes().first(static_cast<std::size_t>(size_bytes));
    file.read_at(offset_bytes, piece);
    if (progress != nullptr) progress->add(size_bytes);
    return base::xxh3(piece);
  }
  base::Xxh3Stream stream;
  for (std::uint64_t done = 0; done < size_bytes;) {
    const std::uint64_t count = std::min<std::uint64_t>(kPieceBytes, size_bytes - done);
    const auto piece = scratch.bytes().first(static_cast<std::size_t>(count));
    file.read_at(offset_bytes + done, piece);
    stream.update(piece);
    done += count;
    if (progress != nullptr) progress->add(count);
  }
  return stream.digest();
}

std::optional<Problem> check_block(const BlockCheck& block, Scratch& scratch, Progress& progress) {
  const std::string& path = block.file->display();
  try {
    const std::uint64_t file_bytes = block.file->size_bytes();
    if (!base::range_fits(block.offset_bytes, block.size_bytes, file_bytes)) {
      const auto end = base::checked_add(block.offset_bytes, block.size_bytes);
      return Problem{path, block.part,
                     "the file is too short: expected at least " +
                         (end ? std::to_string(*end) : "2^64") + " bytes, found " +
                         std::to_string(file_bytes) + "; it may be truncated"};
    }
    const std::uint64_t found =
        checksum_through(*block.file, block.offset_bytes, block.size_bytes, scratch, &progress);
    if (found == block.expected) return std::nullopt;
    return Problem{path, block.part,
                   "the checksum of " + std::to_string(block.size_bytes) + " bytes at offset " +
                       std::to_string(block.offset_bytes) + " differs: expected " +
                       base::hex16(block.expected) + ", found " + base::hex16(found) +
                       "; the file is damaged or was changed"};
  } catch (const Error& error) {
    return Problem{path, block.part, without_path(error.what(), path)};
  }
}

}  // namespace

void write_leaves(std::vector<LeafWrite>& writes, bool checksums, int num_threads,
                  Progress& progress) {
  const std::vector<Run> runs = runs_of(writes, checksums);
  const auto batches =
      batches_of(runs.size(), [&](std::size_t i) { return runs[i].end - runs[i].begin; });
  os::parallel_for(
      batches.size(), os::num_threads_for(num_threads),
      [&](std::size_t item) {
        Scratch scratch;
        for (std::size_t i = batches[item].first; i < batches[item].last; ++i) {
          write_run(writes[runs[i].index], runs[i], checksums, scratch, progress);
        }
      },
      [&] { progress.poll(); });
}

std::uint64_t checksum_of(const os::File& file, std::uint64_t offset_bytes,
                          std::uint64_t size_bytes, Progress* progress) {
  Scratch scratch;
  return checksum_through(file, offset_bytes, size_bytes, scratch, progress);
}

std::vector<Problem> check_blocks(const std::vector<BlockCheck>& blocks, int num_threads,
                                  Progress& progress) {
  std::vector<std::optional<Problem>> found(blocks.size());
  const auto batches =
      batches_of(blocks.size(), [&](std::size_t i) { return blocks[i].size_bytes; });
  os::parallel_for(
      batches.size(), os::num_threads_for(num_threads),
      [&](std::size_t item) {
        Scratch scratch;
        for (std::size_t i = batches[item].first; i < batches[item].last; ++i) {
          found[i] = check_block(blocks[i], scratch, progress);
        }
      },
      [&] { progress.poll(); });
  std::vector<Problem> problems;
  for (auto& problem : found) {
    if (problem) problems.push_back(std::move(*problem));
  }
  return problems;
}

}  // namespace tenfold
