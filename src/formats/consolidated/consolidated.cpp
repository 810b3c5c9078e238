#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tenfold/consolidated.hpp>
#include <tenfold/error.hpp>

#include "base/hash/checksum.hpp"
#include "formats/consolidated/plan.hpp"
#include "formats/consolidated/tree.hpp"
#include "formats/consolidated/write.hpp"
#include "formats/format.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/json_checksums.hpp"
#include "formats/shared/leaf_writer.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"
#include "os/memory/freed_memory.hpp"
#include "os/memory/mapping.hpp"

// The file that tensordict's `consolidate(filename)` writes: the bytes of all tensors, a JSON
// document that tells where each lies (consolidated_tree), and the document's length in 8 bytes.
// What is where:
//   consolidated_tree   the document to a tree of lazy leaves
//   consolidated_plan   a tree to places and the document
//   consolidated_extra  what tenfold adds to it, where tensordict reads over it

namespace tenfold::detail::formats::consolidated {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
/// Of padding to a multiple of 8, and of a gap before a tensor of 16 bytes an element.
constexpr std::size_t kMaxGapBytes = 16;

/// Where the document lies, by the length at the end of the file.
struct Document {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

/// Nothing if no document of that length fits the file.
std::optional<Document> find_document(const os::File& file, std::uint64_t file_bytes,
                                      std::uint64_t& length) {
  std::array<std::byte, kLengthBytes> digits{};
  file.read_at(file_bytes - kLengthBytes, digits);
  std::memcpy(&length, digits.data(), sizeof(length));
  if (length > file_bytes - kLengthBytes) return std::nullopt;
  return Document{file_bytes - kLengthBytes - length, length};
}

class ConsolidatedSource final : public Leaves {
 public:
  ConsolidatedSource(os::File file, std::uint64_t data_bytes)
      : file_(std::move(file)), info_(file_.info()), data_bytes_(data_bytes) {}

  const os::File& file() const noexcept { return file_; }

  Buffer map(const Leaf& leaf) override {
    const StoredRange& range = range_of(leaf);
    if (range.size_bytes == 0) return Buffer();
    // The file begins where a page does, so an odd start is an odd address.
    if (range.begin % itemsize(range.dtype) != 0) return aligned_copy(range);
    std::call_once(mapped_, [this] {
      mapping_ = os::map_file(file_, 0, data_bytes_, os::MapKind::private_copy);
    });
    return mapping_.slice(static_cast<std::size_t>(range.begin),
                          static_cast<std::size_t>(range.size_bytes));
  }
  void read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) override {
    file_.read_at(range_of(leaf).begin + offset_bytes, into);
  }
  void will_need(const Leaf& leaf) override {
    file_.will_need(range_of(leaf).begin, range_of(leaf).size_bytes);
  }
  bool is_one_mapping() const noexcept override { return true; }
  Identity identity(const Leaf& leaf) override {
    const StoredRange& range = range_of(leaf);
    if (range.size_bytes == 0) return {};
    return {.device = info_.device,
            .inode = info_.inode,
            .offset_bytes = range.begin,
            .size_bytes = range.size_bytes};
  }
  std::string where(const Leaf& leaf) const override {
    return file_.display() + ": tensor at byte " + std::to_string(range_of(leaf).begin);
  }

 private:
  const StoredRange& range_of(const Leaf& leaf) const {
    return ranges[static_cast<std::size_t>(leaf.position())];
  }
  Buffer aligned_copy(const StoredRange& range) {
    const std::lock_guard lock(copies_mutex_);
    Buffer& copy = copies_[range.begin];
    if (copy.size_bytes() == 0) {
      Buffer filled = Buffer::allocate(static_cast<std::size_t>(range.size_bytes));
      file_.read_at(range.begin, filled.bytes());
      copy = std::move(filled);
    }
    return copy;
  }

  os::File file_;
  os::FileInfo info_;
  std::uint64_t data_bytes_;
  std::once_flag mapped_;
  Buffer mapping_;
  std::mutex copies_mutex_;
  std::unordered_map<std::uint64_t, Buffer> copies_;  ///< of tensors at odd addresses
};

struct OpenedFile {
  TensorDict tree;
  Extra extra;
  bool locked = false;
  std::string document;
  std::shared_ptr<ConsolidatedSource> source;
  std::uint64_t data_bytes = 0;
};

OpenedFile open_file(os::File file) {
  const std::string where = file.display();
  const auto corrupt = [&](const std::string& what) {
    throw Error(ErrorCode::corrupt, where + ": document length: " + what);
  };
  const std::uint64_t file_bytes = file.size_bytes();
  if (file_bytes < kLengthBytes) {
    corrupt("the file is too short: expected at least 8 bytes, found " +
            std::to_string(file_bytes));
  }
  std::uint64_t length = 0;
  const auto document = find_document(file, file_bytes, length);
  if (!document) {
    corrupt("does not fit the file: expected at most " + std::to_string(file_bytes - kLengthBytes) +
            " bytes, found " + std::to_string(length) + "; the file may be truncated");
  }
  if (length > kMaxDocumentBytes) {
    corrupt("too long: expected at most " + std::to_string(kMaxDocumentBytes) + " bytes, found " +
            std::to_string(length));
  }
  OpenedFile opened;
  opened.document.resize(static_cast<std::size_t>(length));
  file.read_at(document->offset_bytes, std::as_writable_bytes(std::span(opened.document)));
  opened.data_bytes = document->offset_bytes;
  opened.source = std::make_shared<ConsolidatedSource>(std::move(file), opened.data_bytes);
  Tree built = build_tree(opened.document, opened.data_bytes, opened.source, where);
  opened.tree = std::move(built.tree);
  opened.extra = std::move(built.extra);
  opened.locked = built.locked;
  return opened;
}

bool probe(const Path& path) {
  const os::FileInfo info = os::file_info(path);
  if (!info.is_regular || info.size_bytes < kLengthBytes) return false;
  const os::File file = os::File::open_read(path);
  std::uint64_t length = 0;
  const auto document = find_document(file, info.size_bytes, length);
  if (!document) return false;
  // tensordict writes this member first.
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(length, 6)), '\0');
  file.read_at(document->offset_bytes, std::as_writable_bytes(std::span(head)));
  return head == "{\"cls\"";
}

TensorDict open(const Path& path, const OpenRequest& request) {
  if (request.mode == Mode::write_through) {
    throw Error(ErrorCode::unsupported,
                path.string() +
                    ": mode: a consolidated file cannot be written through: expected "
                    "\"r\" or \"c\", found \"r+\"; save it as a memmap folder");
  }
  return open_file(os::File::open_read(path)).tree;
}

void check(const TensorDict& tree) { make_plan(tree, {}); }

/// Zeros between the tensors, so that all of the file is written in runs.
void add_gap(std::vector<LeafWrite>& writes, os::File& file, const Leaf& zeros, std::uint64_t begin,
             std::uint64_t end) {
  if (begin == end) return;
  writes.push_back({&zeros, &file, begin, end - begin, {}});
}

void write(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  write_tree(tree, path, request, false);
}

/// The blocks of all tensors, each once, in the order of the file.
std::vector<BlockCheck> blocks_of(const ConsolidatedSource& source) {
  std::vector<const StoredRange*> ranges;
  for (const StoredRange& range : source.ranges) {
    if (range.size_bytes > 0) ranges.push_back(&range);
  }
  std::ranges::sort(ranges, {}, &StoredRange::begin);
  std::vector<BlockCheck> blocks;
  const StoredRange* before = nullptr;
  for (const StoredRange* range : ranges) {
    if (before != nullptr && before->begin == range->begin) continue;
    before = range;
    for (std::uint64_t done = 0; done < range->size_bytes; done += base::kChecksumBlockBytes) {
      BlockCheck block;
      block.file = &source.file();
      block.offset_bytes = range->begin + done;
      block.size_bytes = std::min(base::kChecksumBlockBytes, range->size_bytes - done);
      block.part = "tensor at byte " + std::to_string(range->begin);
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

void verify_blocks(const OpenedFile& opened, const Path& path, const VerifyRequest& request,
                   VerifyReport& report) {
  if (opened.extra.checksums.empty()) return;
  std::vector<BlockCheck> blocks = blocks_of(*opened.source);
  const std::uint64_t length = opened.document.size();
  ChecksummedDocument document{path.string(),     "\"tenfold_xxh3\"", "document",
                               opened.data_bytes, opened.document,    opened.extra.checksums,
                               blocks.size()};
  document.bytes.append(reinterpret_cast<const char*>(&length), kLengthBytes);
  const auto checksums = check_document(document, report);
  if (!checksums) return;
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].expected = (*checksums)[i];
  std::erase_if(blocks, [&](const BlockCheck& block) {
    return request.skips(block.file->display() + ": " + block.part);
  });
  Progress progress(request.monitor, opened.data_bytes, path.filename().string());
  for (Problem& problem : check_blocks(blocks, request.num_threads, progress)) {
    report.problems.push_back(std::move(problem));
  }
  progress.finish();
}

/// tensordict writes no checksums: then what can be checked is that the document fits the file.
VerifyReport verify(const Path& path, const VerifyRequest& request) {
  VerifyReport report;
  try {
    const OpenedFile opened = open_file(os::File::open_read(path));
    opened.tree.for_each_leaf([&](const KeyPath&, const TensorDict::Item& item) {
      if (std::holds_alternative<Leaf>(item)) ++report.num_leaves;
    });
    report.num_bytes = opened.data_bytes;
    verify_blocks(opened, path, request, report);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw;
    std::string what = error.what();
    const std::string prefix = path.string() + ": ";
    if (what.starts_with(prefix)) what.erase(0, prefix.size());
    report.problems.push_back({path.string(), "document", std::move(what)});
  }
  return report;
}

}  // namespace

void write_tree(const TensorDict& tree, const Path& path, const WriteRequest& request,
                bool locked) {
  if (request.zeros) {
    throw Error(ErrorCode::unsupported,
                path.string() +
                    ": memmap_like: a consolidated file cannot be written through: expected a "
                    "folder, found the format \"consolidated\"");
  }
  Plan plan =
      make_plan(tree, {.notes = request.notes, .checksums = request.checksums, .locked = locked});
  Progress progress(request.monitor, plan.data_bytes, path.filename().string());
  FileReplacement replacement(path, plan.data_bytes);
  const std::array<std::uint8_t, kMaxGapBytes> no_bytes{};
  const Leaf zeros = Tensor::from(std::span<const std::uint8_t>(no_bytes));
  std::vector<LeafWrite> writes;
  writes.reserve(plan.tensors.size() * 2);
  std::uint64_t end = 0;
  for (const Plan::Tensor& tensor : plan.tensors) {
    add_gap(writes, replacement.file(), zeros, end, tensor.begin);
    writes.push_back({&tensor.leaf, &replacement.file(), tensor.begin, tensor.size_bytes, {}});
    end = tensor.begin + tensor.size_bytes;
  }
  add_gap(writes, replacement.file(), zeros, end, plan.data_bytes);
  write_leaves(writes, xxh3_if(request.checksums), request.num_threads, progress, request.durable);

  const std::uint64_t length = plan.document.size();
  plan.document.append(reinterpret_cast<const char*>(&length), kLengthBytes);
  if (request.checksums) {
    std::vector<std::uint64_t> blocks;
    for (const LeafWrite& write : writes) {
      if (write.leaf == &zeros) continue;
      blocks.insert(blocks.end(), write.block_checksums.begin(), write.block_checksums.end());
    }
    fill_checksums(plan.document, blocks);
  }
  replacement.file().write_at(plan.data_bytes, std::as_bytes(std::span(plan.document)));
  replacement.publish(request.durable);
  progress.finish();
}

TensorDict open_consolidated(const Path& path, bool& locked) {
  os::keep_freed_memory();
  OpenedFile opened = open_file(os::File::open_read(path));
  locked = opened.locked;
  return opened.tree;
}

const Format kFormat = {"consolidated", {}, probe, open, check, write, verify, true};

}  // namespace tenfold::detail::formats::consolidated
