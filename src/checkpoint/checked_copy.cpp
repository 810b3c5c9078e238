#include "checkpoint/checked_copy.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>

#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "checkpoint/staging.hpp"
#include "checkpoint/step.hpp"
#include "core/tree/aliases.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/safetensors/file.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/progress.hpp"
#include "io/tree.hpp"
#include "os/fs/directory.hpp"
#include "os/thread/thread_pool.hpp"

namespace tenfold::checkpoint {

using namespace detail;

namespace {

/// Of the formats whose tensors are not among the bytes that fingerprint() reads. Nothing if
/// several processes wrote them, in boxes instead of blocks.
std::optional<formats::ChecksumsByLeaf> checksums_of(const Path& path, const std::string& format) {
  formats::ChecksumsByLeaf all;
  if (format == "safetensors") {
    VerifyReport report;
    const auto opened = formats::safetensors::open_file(os::File::open_read(path));
    if (opened.header->metadata_value(formats::safetensors::kBoxesMember)) return std::nullopt;
    all = formats::safetensors::tensor_checksums(opened, report);
    if (!report.ok()) throw Error(ErrorCode::corrupt, first_problem(report));
  } else if (format == "memmap") {
    const os::Directory root = os::Directory::open(path);
    const std::string name(formats::kChecksumsName);
    const std::string text =
        os::File::open_read_at(root, name).read_all(formats::kMaxChecksumsBytes);
    std::map<std::string, std::uint64_t> last;  // bytes of the last block of each file
    for (formats::ChecksumLine& line : formats::parse_checksums(text, root.display_of(name))) {
      // Only the last block of a file is shorter than the others.
      std::uint64_t& last_bytes =
          last.try_emplace(line.path, base::kChecksumBlockBytes).first->second;
      if (line.box || last_bytes != base::kChecksumBlockBytes) return std::nullopt;
      last_bytes = line.size_bytes;
      all[root.display_of(line.path)].push_back(line.checksum);
    }
  }
  return all;
}

/// A block of a tensor that is copied.
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
    // In parts, between which the caller may interrupt.
    constexpr std::size_t kBlocksAtOnce = 64;
    formats::Progress progress(monitor, blocks_.size() * base::kChecksumBlockBytes, "restore");
    for (std::size_t begin = 0; begin < blocks_.size(); begin += kBlocksAtOnce) {
      const std::size_t count = std::min(kBlocksAtOnce, blocks_.size() - begin);
      os::parallel_for(count, os::num_threads_for(num_threads),
                       [&](std::size_t i) { copy(blocks_[begin + i]); });
      progress.add(count * base::kChecksumBlockBytes);
      progress.poll();
    }
  }

  TensorDict tree_over_copies(const TensorDict& tree) {
    std::size_t next = 0;
    return map_leaves(tree,
                      [&](const Leaf& leaf) { return leaf_over(leaf, *copies_[first_[next++]]); });
  }

 private:
  void plan(std::size_t i, const formats::ChecksumsByLeaf& checksums, bool needs_all) {
    const Leaf& leaf = leaves_[i].leaf;
    const Tensor shaped = leaf.is_nested() ? leaf.tensor() : Tensor();
    const std::uint64_t size = leaf.nbytes();
    copies_[i] = Tensor(leaf.dtype(), leaf.is_nested() ? shaped.shape() : leaf.shape(),
                        Buffer::allocate(static_cast<std::size_t>(size)));
    const std::string where = leaf.source() ? leaf.source()->where(leaf) : std::string();
    const auto found = checksums.find(where);
    const std::uint64_t count = (size + base::kChecksumBlockBytes - 1) / base::kChecksumBlockBytes;
    const bool is_known = found != checksums.end() && found->second.size() == count;
    if (needs_all && count != 0 && !is_known) {
      throw Error(ErrorCode::corrupt,
                  where + ": expected the checksums of its " + std::to_string(count) +
                      " blocks, found " +
                      (found == checksums.end() ? "none" : std::to_string(found->second.size())));
    }
    for (std::uint64_t b = 0; b < count; ++b) {
      Block block{i, b * base::kChecksumBlockBytes, std::nullopt};
      if (is_known) block.expected = found->second[static_cast<std::size_t>(b)];
      blocks_.push_back(block);
    }
  }

  void copy(const Block& block) const {
    const Leaf& leaf = leaves_[block.leaf].leaf;
    const Tensor& into = *copies_[block.leaf];
    const std::uint64_t size =
        std::min(base::kChecksumBlockBytes, into.nbytes() - block.offset_bytes);
    const std::span<std::byte> bytes(into.raw_data() + block.offset_bytes,
                                     static_cast<std::size_t>(size));
    leaf.read(block.offset_bytes, bytes);
    if (!block.expected) return;
    const std::uint64_t found = base::xxh3(bytes);
    if (found == *block.expected) return;
    throw Error(ErrorCode::corrupt, leaf.source()->where(leaf) + ": block at byte " +
                                        std::to_string(block.offset_bytes) +
                                        ": checksum: expected " + base::hex16(*block.expected) +
                                        ", found " + base::hex16(found));
  }

  std::vector<NamedLeaf> leaves_;
  std::vector<std::size_t> first_;
  std::vector<std::optional<Tensor>> copies_;
  std::vector<Block> blocks_;
};

}  // namespace

TensorDict::Item copy_checked(const TensorDict::Item& item, const Path& step_path,
                              const CheckpointEntry& entry, int num_threads, Monitor* monitor) {
  if (std::holds_alternative<NonTensor>(item)) return item;
  const Path path = step_path / entry.path;
  const auto checksums = checksums_of(path, entry.format);
  const bool needs_all = checksums && (entry.format == "safetensors" || entry.format == "memmap");
  if (!checksums) {
    const VerifyReport report =
        verify(path, {.format = entry.format, .num_threads = num_threads, .monitor = monitor});
    if (!report.ok()) throw Error(ErrorCode::corrupt, first_problem(report));
  }
  const auto copied = [&](const TensorDict& tree) {
    CheckedCopy copy(tree, checksums.value_or(formats::ChecksumsByLeaf()), needs_all);
    copy.run(num_threads, monitor);
    return copy.tree_over_copies(tree);
  };
  if (const auto* node = std::get_if<TensorDict>(&item)) return copied(*node);
  TensorDict alone;
  alone.set("value", item);
  return copied(alone).get("value");
}

}  // namespace tenfold::checkpoint
