#include "checkpoint/checked_copy.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/step.hpp"
#include "core/tree/aliases.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/safetensors/file.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "io/tree.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/memory/allocation.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::checkpoint {

using namespace detail;

namespace {

/// Copies of fewer bytes are allocated on the heap. Larger ones get pages of their own.
constexpr std::uint64_t kSmallCopyBytes = std::uint64_t{1} << 20;
/// Bytes per read. A larger piece would be evicted from the CPU cache before it is hashed.
constexpr std::uint64_t kCopyPieceBytes = std::uint64_t{1} << 20;

/// The stored checksums of an entry's tensors.
struct StoredChecksums {
  formats::ChecksumsByLeaf blocks;
  bool has_boxes = false;  ///< some checksums cover boxes instead of blocks
};

/// Reads the block checksums of an entry in the format safetensors or memmap. For other formats,
/// returns none: fingerprint() hashes all of their bytes.
StoredChecksums checksums_of(const Path& path, const std::string& format) {
  StoredChecksums stored;
  if (format == "safetensors") {
    VerifyReport report;
    const auto opened = formats::safetensors::open_file(os::File::open_read(path));
    stored.has_boxes = opened.header->metadata_value(formats::safetensors::kBoxesMember) != nullptr;
    stored.blocks = formats::safetensors::tensor_checksums(opened, report);
    if (!report.ok()) throw formats::error_of(report);
  } else if (format == "memmap") {
    const os::Directory root = os::Directory::open(path);
    const std::string name(formats::kChecksumsName);
    const std::string text =
        os::File::open_read_at(root, name).read_all(formats::kMaxChecksumsBytes);
    std::map<std::string, std::uint64_t> last;  // by file: bytes of its last block so far
    for (formats::ChecksumLine& line : formats::parse_checksums(text, root.display_of(name))) {
      // If one process wrote a file, only its last block may be shorter than the others. A block
      // after a shorter one shows that several processes wrote boxes of the file.
      std::uint64_t& last_bytes =
          last.try_emplace(line.path, base::kChecksumBlockBytes).first->second;
      const bool follows_short_block = last_bytes != base::kChecksumBlockBytes;
      last_bytes = line.size_bytes;
      stored.has_boxes = stored.has_boxes || line.box != nullptr || follows_short_block;
      stored.blocks[root.display_of(line.path)].push_back(line.checksum);
    }
  }
  return stored;
}

Buffer allocate_copy(std::uint64_t size_bytes) {
  const auto size = static_cast<std::size_t>(size_bytes);
  if (size_bytes < kSmallCopyBytes) return Buffer::allocate(size);
  auto pages = os::allocate_pages(size);
  const std::span bytes(pages.get(), size);
  return {bytes, std::move(pages)};
}

/// A block of a tensor to copy.
struct Block {
  std::size_t leaf = 0;
  std::uint64_t offset_bytes = 0;
  std::optional<std::uint64_t> expected;
};

class CheckedCopy {
 public:
  CheckedCopy(const TensorDict& tree, const formats::ChecksumsByLeaf& checksums, bool needs_all)
      : leaves_(tensors_of(tree)),
        first_(alias_targets(leaves_, &NamedLeaf::leaf)),
        copies_(leaves_.size()) {
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      if (first_[i] == i) plan(i, checksums, needs_all);
    }
  }

  void run(int num_threads, Monitor* monitor) {
    std::uint64_t total_bytes = 0;
    for (const auto& copy : copies_) total_bytes += copy ? copy->nbytes() : 0;
    formats::Progress progress(monitor, total_bytes, "restore");
    os::parallel_for(
        blocks_.size(), os::num_threads_for(num_threads),
        [&](std::size_t i) { copy(blocks_[i], progress); }, [&] { progress.poll(); });
  }

  TensorDict tree_with_copies(const TensorDict& tree) {
    std::size_t next = 0;
    // Aliases share one copy. Each alias keeps its dtype and shape, which may differ from those of
    // the first tensor over the same bytes.
    return map_leaves(tree, [&](const Leaf& leaf) {
      return with_bytes(leaf, copies_[first_[next++]]->buffer());
    });
  }

 private:
  void plan(std::size_t i, const formats::ChecksumsByLeaf& checksums, bool needs_all) {
    const Leaf& leaf = leaves_[i].leaf;
    const Tensor shaped = leaf.is_nested() ? leaf.tensor() : Tensor();
    const std::uint64_t size = leaf.nbytes();
    copies_[i] =
        Tensor(leaf.dtype(), leaf.is_nested() ? shaped.shape() : leaf.shape(), allocate_copy(size));
    const base::Where where = source_of(leaf) ? source_of(leaf)->where(leaf) : base::Where();
    const auto found = checksums.find(where.text());
    const std::uint64_t count = base::num_checksum_blocks(size);
    const bool is_known = found != checksums.end() && found->second.size() == count;
    if (needs_all && count != 0 && !is_known) {
      throw base::corrupt(where)
          .expected("the checksums of its ", count, " blocks")
          .found((found == checksums.end() ? "none" : std::to_string(found->second.size())));
    }
    for (std::uint64_t b = 0; b < count; ++b) {
      Block block{i, b * base::kChecksumBlockBytes, std::nullopt};
      if (is_known) block.expected = found->second[static_cast<std::size_t>(b)];
      blocks_.push_back(block);
    }
  }

  void copy(const Block& block, formats::Progress& progress) const {
    const Leaf& leaf = leaves_[block.leaf].leaf;
    const Tensor& into = *copies_[block.leaf];
    const std::uint64_t end =
        std::min(block.offset_bytes + base::kChecksumBlockBytes, into.nbytes());
    base::Xxh3Stream stream;
    for (std::uint64_t at = block.offset_bytes; at < end; at += kCopyPieceBytes) {
      const auto size = static_cast<std::size_t>(std::min(kCopyPieceBytes, end - at));
      const std::span<std::byte> piece(into.mutable_raw_data() + at, size);
      leaf.read(at, piece);
      progress.add(size);
      if (block.expected) stream.update(piece);
    }
    const std::uint64_t found = stream.digest();
    if (!block.expected || found == *block.expected) return;
    throw base::corrupt(source_of(leaf)->where(leaf))
        .part("block at byte ", block.offset_bytes, ": checksum")
        .expected(base::hex16(*block.expected))
        .found(base::hex16(found));
  }

  std::vector<NamedLeaf> leaves_;
  std::vector<std::size_t> first_;
  std::vector<std::optional<Tensor>> copies_;
  std::vector<Block> blocks_;
};

}  // namespace

TensorDict::Item copy_entry(const TensorDict::Item& item, const Path& step_path,
                            const CheckpointEntry& entry, bool compares, int num_threads,
                            Monitor* monitor) {
  if (std::holds_alternative<NonTensor>(item)) return item;
  const Path path = step_path / entry.path;
  StoredChecksums stored;
  bool needs_all = compares && (entry.format == "safetensors" || entry.format == "memmap");
  if (compares) stored = checksums_of(path, entry.format);
  if (stored.has_boxes) {
    // The checksums of boxes do not apply to the copied blocks, so verify in a separate pass.
    const VerifyReport report =
        verify(path, {.format = entry.format, .num_threads = num_threads, .monitor = monitor});
    if (!report.ok()) throw formats::error_of(report);
    stored.blocks.clear();
    needs_all = false;
  }
  const auto copied = [&](const TensorDict& tree) {
    CheckedCopy copy(tree, stored.blocks, needs_all);
    copy.run(num_threads, monitor);
    return copy.tree_with_copies(tree);
  };
  if (const auto* node = std::get_if<TensorDict>(&item)) return copied(*node);
  TensorDict alone;
  alone.set("value", item);
  return copied(alone).get("value");
}

}  // namespace tenfold::checkpoint
