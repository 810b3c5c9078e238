#include "formats/shared/leaf_writer.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/once_flags.hpp"
#include "codecs/zip/zip.hpp"
#include "core/tensor/leaf_bytes.hpp"
#include "formats/shared/problem.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::detail::formats {

void PieceChecksum::update(std::span<const std::byte> piece) {
  if (kind_ == BlockChecksum::crc32) {
    value_ = codecs::crc32(piece, static_cast<std::uint32_t>(value_));
  } else if (kind_ == BlockChecksum::xxh3 && piece.size() == size_bytes_) {
    value_ = base::xxh3(piece);
  } else if (kind_ == BlockChecksum::xxh3) {
    if (!stream_) stream_.emplace();
    stream_->update(piece);
  }
}

namespace {

constexpr std::uint64_t kLeafBlockBytes = base::kChecksumBlockBytes;
/// Size of a piece, which is hashed and then written while it is in the CPU cache. Writes of this
/// size, aligned to it, let the page cache use its largest folios: 512 MiB take 92 ms, instead of
/// 487 ms with pieces of 256 KiB.
constexpr std::size_t kWritePieceBytes = std::size_t{2} << 20;
/// Smaller pieces are written together with their neighbours.
constexpr std::size_t kDirectBytes = kWritePieceBytes / 4;
/// Pieces below this size are copied into one buffer: an iovec costs as much as the copy.
constexpr std::size_t kCopiedBytes = std::size_t{2} << 10;
/// Read size of verify: larger pieces would leave the cache before they are hashed.
constexpr std::size_t kReadPieceBytes = std::size_t{1} << 20;
/// Consecutive small runs or blocks are grouped into batches of up to this size, to reduce the
/// overhead of scheduling.
constexpr std::uint64_t kBatchBytes = std::uint64_t{4} << 20;
/// If threads that do not write compute the checksums, small runs are grouped into tasks of up to
/// this size.
constexpr std::uint64_t kHashedBytes = std::uint64_t{1} << 20;

/// The bytes [begin, end) of writes[index], at most one block.
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

/// Groups consecutive items into batches of at most batch_bytes, or of one larger item. A new batch
/// starts where `may_join` returns false.
template <class SizeOf, class MayJoin>
std::vector<Batch> batches_of(std::size_t count, std::uint64_t batch_bytes, const SizeOf& size_of,
                              const MayJoin& may_join) {
  std::vector<Batch> batches;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (batches.empty() || bytes + size_of(i) > batch_bytes || !may_join(i)) {
      batches.push_back({i, i});
      bytes = 0;
    }
    batches.back().last = i + 1;
    bytes += size_of(i);
  }
  return batches;
}

/// A scratch buffer that is allocated at its first use.
class Scratch {
 public:
  explicit Scratch(std::size_t size_bytes) : size_bytes_(size_bytes) {}
  std::span<std::byte> bytes() {
    if (!memory_) memory_ = std::make_unique_for_overwrite<std::byte[]>(size_bytes_);
    return {memory_.get(), size_bytes_};
  }

 private:
  std::size_t size_bytes_;
  std::unique_ptr<std::byte[]> memory_;
};

/// Writes pieces, and combines small adjacent ones into one write.
class Gatherer {
 public:
  /// `stays_valid`: the bytes stay valid until the next flush().
  void put(os::File& file, std::uint64_t offset_bytes, std::span<const std::byte> piece,
           bool stays_valid) {
    const bool follows = file_ == &file && offset_bytes == offset_ + size_;
    const bool fits =
        size_ + piece.size() <= kWritePieceBytes && parts_.size() < os::File::kMaxParts;
    if (!follows || !fits) flush();
    if (piece.size() >= kDirectBytes) {
      flush();
      file.write_at(offset_bytes, piece);
      return;
    }
    if (parts_.empty()) {
      file_ = &file;
      offset_ = offset_bytes;
    }
    add(stays_valid && piece.size() >= kCopiedBytes ? piece : copied(piece));
    size_ += piece.size();
    // Flush at multiples of the piece size in the file, where the next large piece begins.
    if ((offset_ + size_) % kWritePieceBytes == 0) flush();
  }

  void flush() {
    if (!parts_.empty()) file_->write_at(offset_, parts_);
    parts_.clear();
    size_ = 0;
    copied_ = 0;
  }

 private:
  std::span<const std::byte> copied(std::span<const std::byte> piece) {
    const auto copy = memory_.bytes().subspan(copied_, piece.size());
    std::memcpy(copy.data(), piece.data(), piece.size());
    copied_ += piece.size();
    return copy;
  }
  void add(std::span<const std::byte> part) {
    if (!parts_.empty() && parts_.back().data() + parts_.back().size() == part.data()) {
      parts_.back() = {parts_.back().data(), parts_.back().size() + part.size()};
    } else {
      parts_.push_back(part);
    }
  }

  Scratch memory_{kWritePieceBytes};
  std::size_t copied_ = 0;
  os::File* file_ = nullptr;
  std::uint64_t offset_ = 0;
  std::size_t size_ = 0;
  std::vector<std::span<const std::byte>> parts_;
};

/// Memory of one thread, for bytes that cannot be written directly from the leaf and for small
/// pieces.
struct Workspace {
  Scratch scratch{kWritePieceBytes};
  Gatherer gatherer;
};

/// Reuses workspaces: allocating one per batch would cost as much as writing the batch.
class Workspaces {
 public:
  std::unique_ptr<Workspace> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>();
    std::unique_ptr<Workspace> taken = std::move(free_.back());
    free_.pop_back();
    return taken;
  }
  void give_back(std::unique_ptr<Workspace> workspace) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

bool is_contiguous(const Leaf& leaf) {
  const Tensor* tensor = leaf.tensor_in_memory();
  return tensor != nullptr && tensor->is_contiguous();
}

std::uint64_t& checksum_of(LeafWrite& write, const Run& run) {
  return write.block_checksums[static_cast<std::size_t>(run.begin / kLeafBlockBytes)];
}

/// True if there is a head, and the leaf is small enough to be hashed before anything is written,
/// so that head and leaf are one write.
bool follows_header(const LeafWrite& write) {
  return write.head && write.size_bytes <= kDirectBytes;
}

void write_after_its_head(LeafWrite& write, const Run& run, BlockChecksum kind, Workspace& space,
                          Progress& progress) {
  const bool stays_valid = is_contiguous(*write.leaf);
  const auto use = [&](std::span<const std::byte> piece) {
    PieceChecksum checksum(kind, piece.size());
    checksum.update(piece);
    if (kind != BlockChecksum::none && run.end > 0) checksum_of(write, run) = checksum.value();
    const std::string head = write.head(write);
    space.gatherer.put(*write.file, write.file_offset_bytes - head.size(),
                       std::as_bytes(std::span(head)), false);
    if (piece.empty()) return;
    space.gatherer.put(*write.file, write.file_offset_bytes, piece, stays_valid);
    progress.add(piece.size());
  };
  if (write.size_bytes == 0) {
    use({});
  } else {
    for_each_piece(*write.leaf, run.begin, run.end, space.scratch.bytes(), use);
  }
}

void write_run(LeafWrite& write, const Run& run, BlockChecksum kind, Workspace& space,
               Progress& progress) {
  const std::uint64_t item_bytes = itemsize(write.leaf->dtype());
  PieceChecksum checksum(kind, run.end - run.begin);
  std::uint64_t position = run.begin;
  const bool stays_valid = is_contiguous(*write.leaf);
  const auto use = [&](std::span<const std::byte> piece) {
    checksum.update(piece);
    space.gatherer.put(*write.file, write.file_offset_bytes + position, piece, stays_valid);
    position += piece.size();
    progress.add(piece.size());
  };
  while (position < run.end) {
    // Read whole elements up to the next piece boundary in the file.
    const std::uint64_t in_file = write.file_offset_bytes + position;
    std::uint64_t count = kWritePieceBytes - in_file % kWritePieceBytes;
    count = std::max(count - count % item_bytes, item_bytes);
    const std::uint64_t begin = write.leaf_offset_bytes + position;
    const std::uint64_t end = write.leaf_offset_bytes + std::min(position + count, run.end);
    for_each_piece(*write.leaf, begin, end, space.scratch.bytes(), use);
  }
  if (kind != BlockChecksum::none) checksum_of(write, run) = checksum.value();
}

/// Hashes a run that is contiguous in memory.
void hash_run(LeafWrite& write, const Run& run, BlockChecksum kind) {
  const std::byte* bytes = write.leaf->tensor_in_memory()->raw_data() + write.leaf_offset_bytes;
  PieceChecksum checksum(kind, run.end - run.begin);
  checksum.update({bytes + run.begin, bytes + run.end});
  checksum_of(write, run) = checksum.value();
}

/// The checksums of all runs, computed by threads that have no file to write. A thread that writes
/// a header before the bytes of a run needs the checksum of the run first: it waits for the
/// checksum or computes it itself.
class ChecksumTasks {
 public:
  ChecksumTasks(std::vector<LeafWrite>& writes, const std::vector<Run>& runs, BlockChecksum kind,
                std::vector<Batch> batches)
      : writes_(writes),
        runs_(runs),
        kind_(kind),
        batches_(std::move(batches)),
        once_flags_(batches_.size()) {}

  std::size_t num_batches() const noexcept { return batches_.size(); }
  void take(std::size_t batch) {
    once_flags_.do_once(batch, [&] { hash(batches_[batch]); });
  }
  void ensure(std::size_t run) {
    const auto after = std::ranges::upper_bound(batches_, run, {}, &Batch::first);
    const auto batch = static_cast<std::size_t>(after - batches_.begin()) - 1;
    once_flags_.ensure(batch, [&] { hash(batches_[batch]); });
  }

 private:
  void hash(const Batch& batch) {
    for (std::size_t i = batch.first; i < batch.last; ++i) {
      if (runs_[i].end > 0) hash_run(writes_[runs_[i].index], runs_[i], kind_);
    }
  }

  std::vector<LeafWrite>& writes_;
  const std::vector<Run>& runs_;
  BlockChecksum kind_;
  std::vector<Batch> batches_;
  base::OnceFlags once_flags_;
};

/// Writes the heads of the leaves that were written without their heads.
void write_separate_headers(const std::vector<LeafWrite>& writes) {
  for (const LeafWrite& write : writes) {
    if (!write.head || follows_header(write)) continue;
    const std::string head = write.head(write);
    write.file->write_at(write.file_offset_bytes - head.size(), std::as_bytes(std::span(head)));
  }
}

std::vector<Run> runs_of(std::vector<LeafWrite>& writes, bool checksums) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const std::uint64_t size = writes[i].size_bytes;
    if (size == 0 && writes[i].head) runs.push_back({i, 0, 0});
    for (std::uint64_t begin = 0; begin < size; begin += kLeafBlockBytes) {
      runs.push_back({i, begin, std::min(begin + kLeafBlockBytes, size)});
    }
    const auto num_blocks = static_cast<std::size_t>(base::num_checksum_blocks(size));
    writes[i].block_checksums.assign(checksums ? num_blocks : 0, 0);
  }
  return runs;
}

std::uint64_t checksum_through(const os::File& file, std::uint64_t offset_bytes,
                               std::uint64_t size_bytes, Scratch& scratch, Progress* progress) {
  if (size_bytes <= kReadPieceBytes) {
    const auto piece = scratch.bytes().first(static_cast<std::size_t>(size_bytes));
    file.read_at(offset_bytes, piece);
    if (progress != nullptr) progress->add(size_bytes);
    return base::xxh3(piece);
  }
  base::Xxh3Stream stream;
  for (std::uint64_t done = 0; done < size_bytes;) {
    const std::uint64_t count = std::min<std::uint64_t>(kReadPieceBytes, size_bytes - done);
    const auto piece = scratch.bytes().first(static_cast<std::size_t>(count));
    file.read_at(offset_bytes + done, piece);
    stream.update(piece);
    done += count;
    if (progress != nullptr) progress->add(count);
  }
  return stream.digest();
}

std::optional<Problem> check_block(const BlockCheck& block, Scratch& scratch, Progress& progress) {
  const base::Where where(block.file->display(), block.part);
  try {
    const std::uint64_t file_bytes = block.file->size_bytes();
    if (!base::range_fits(block.offset_bytes, block.size_bytes, file_bytes)) {
      const auto end = base::checked_add(block.offset_bytes, block.size_bytes);
      return problem_of(base::corrupt(where)
                            .problem("the file is too short")
                            .expected("at least ", end ? std::to_string(*end) : "2^64", " bytes")
                            .found(file_bytes)
                            .remedy("it may be truncated"));
    }
    const std::uint64_t found =
        checksum_through(*block.file, block.offset_bytes, block.size_bytes, scratch, &progress);
    if (found == block.expected) return std::nullopt;
    return problem_of(base::corrupt(where)
                          .problem("the checksum of ", block.size_bytes, " bytes at offset ",
                                   block.offset_bytes, " differs")
                          .expected(base::hex16(block.expected))
                          .found(base::hex16(found))
                          .remedy("the file is damaged or was changed"));
  } catch (const Error& error) {
    if (!is_problem_of_files(error)) throw;
    return problem_of(error, where);
  }
}

}  // namespace

void write_leaves(std::vector<LeafWrite>& writes, BlockChecksum checksum, int num_threads,
                  Progress& progress, bool will_sync) {
  const bool checksums = checksum != BlockChecksum::none;
  const std::vector<Run> runs = runs_of(writes, checksums);
  const auto size_of = [&](std::size_t i) { return runs[i].end - runs[i].begin; };
  const auto threads = static_cast<std::size_t>(os::num_threads_for(num_threads));
  const auto file_of = [&](std::size_t i) { return writes[runs[i].index].file; };
  std::size_t num_files = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i == 0 || file_of(i) != file_of(i - 1)) ++num_files;
  }
  const bool all_contiguous = std::ranges::all_of(
      writes, [](const LeafWrite& write) { return is_contiguous(*write.leaf); });
  // The kernel serialises writes to one file, and contention makes them slower: several threads
  // needed three times as long as one (49 ms instead of 16 ms). So one thread writes a whole file,
  // unless there are fewer files than threads and the bytes of some leaves must first be read or
  // gathered.
  const bool by_file = num_files >= threads || all_contiguous;
  const auto batches = batches_of(runs.size(), by_file ? ~std::uint64_t{0} : kBatchBytes, size_of,
                                  [&](std::size_t i) { return file_of(i) == file_of(i - 1); });
  // Threads that have no file to write compute checksums for the threads that write.
  std::vector<Batch> to_hash;
  if (checksums && all_contiguous && num_files < threads) {
    to_hash = batches_of(runs.size(), kHashedBytes, size_of, [](std::size_t) { return true; });
    if (to_hash.size() < 2) to_hash.clear();  // not worth another thread
  }
  const bool hashed_separately = !to_hash.empty();
  const BlockChecksum written_with = hashed_separately ? BlockChecksum::none : checksum;
  ChecksumTasks hashes(writes, runs, checksum, std::move(to_hash));
  Workspaces workspaces;
  std::atomic<std::uint64_t> waiting_bytes = 0;  // written since the last start of writeback
  const std::thread::id caller = std::this_thread::get_id();
  const auto write = [&](const Batch& batch) {
    auto space = workspaces.take();
    for (std::size_t i = batch.first; i < batch.last; ++i) {
      LeafWrite& of = writes[runs[i].index];
      if (follows_header(of)) {
        if (hashed_separately) hashes.ensure(i);
        write_after_its_head(of, runs[i], written_with, *space, progress);
      } else {
        write_run(of, runs[i], written_with, *space, progress);
      }
      // A batch may be a file of any size, and Ctrl-C must not wait until it is written.
      if (std::this_thread::get_id() == caller) progress.poll();
      if (will_sync && (waiting_bytes += size_of(i)) >= kLeafBlockBytes) {
        waiting_bytes = 0;
        of.file->start_writeback();
      }
    }
    space->gatherer.flush();
    workspaces.give_back(std::move(space));
  };
  os::parallel_for(
      batches.size() + hashes.num_batches(), static_cast<int>(threads),
      [&](std::size_t item) {
        if (item < batches.size()) {
          write(batches[item]);
        } else {
          hashes.take(item - batches.size());
        }
      },
      [&] { progress.poll(); });
  write_separate_headers(writes);
}

void compare_with_checksums(std::vector<LeafComparison>& leaves, CompareUntil until,
                            int num_threads, Progress& progress) {
  struct Block {
    std::size_t leaf;
    std::size_t number;
  };
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    for (std::size_t b = 0; b < leaves[i].stored.size(); ++b) blocks.push_back({i, b});
  }
  std::vector<std::atomic<bool>> differs(leaves.size());
  std::atomic<bool> any_differs = false;
  os::parallel_for(
      blocks.size(), os::num_threads_for(num_threads),
      [&](std::size_t item) {
        const auto& [number, block] = blocks[item];
        const LeafComparison& compared = leaves[number];
        if (until == CompareUntil::first_difference ? any_differs : differs[number]) return;
        const std::uint64_t begin = block * kLeafBlockBytes;
        const std::uint64_t end = std::min(begin + kLeafBlockBytes, compared.leaf->nbytes());
        PieceChecksum checksum(BlockChecksum::xxh3, end - begin);
        if (is_contiguous(*compared.leaf)) {
          const std::byte* bytes = compared.leaf->tensor_in_memory()->raw_data();
          checksum.update({bytes + begin, bytes + end});
        } else {
          Scratch scratch(kWritePieceBytes);
          for_each_piece(*compared.leaf, begin, end, scratch.bytes(),
                         [&](std::span<const std::byte> piece) { checksum.update(piece); });
        }
        if (checksum.value() == compared.stored[block]) return;
        differs[number] = true;
        any_differs = true;
      },
      [&] { progress.poll(); });
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const bool is_known = until == CompareUntil::each_is_known || !any_differs;
    leaves[i].is_equal = is_known && !differs[i];
  }
}

std::uint64_t checksum_of(const os::File& file, std::uint64_t offset_bytes,
                          std::uint64_t size_bytes, Progress* progress) {
  Scratch scratch(kReadPieceBytes);
  return checksum_through(file, offset_bytes, size_bytes, scratch, progress);
}

std::vector<Problem> check_blocks(const std::vector<BlockCheck>& blocks, int num_threads,
                                  Progress& progress) {
  std::vector<std::optional<Problem>> found(blocks.size());
  const auto batches = batches_of(
      blocks.size(), kBatchBytes, [&](std::size_t i) { return blocks[i].size_bytes; },
      [](std::size_t) { return true; });
  os::parallel_for(
      batches.size(), os::num_threads_for(num_threads),
      [&](std::size_t item) {
        Scratch scratch(kReadPieceBytes);
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

}  // namespace tenfold::detail::formats
