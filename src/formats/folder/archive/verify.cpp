#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "codecs/zip/structure.hpp"
#include "formats/folder/archive/archive.hpp"
#include "formats/folder/archive/folder.hpp"
#include "formats/folder/verify.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/folder_verify.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "os/thread/thread_pool.hpp"

// Reads the entries of an archive that the request does not skip, in blocks that are distributed
// over threads, and checks their CRC-32s and their checksums in `%checksums`.

namespace tenfold::detail::formats::folder {
namespace {

constexpr std::uint64_t kBlockBytes = base::kChecksumBlockBytes;
constexpr std::size_t kCheckedPieceBytes = std::size_t{1} << 20;

/// A part of an entry that one thread checks: one block of a stored entry, or the whole entry if it
/// is empty or deflated, or if its lines in `%checksums` do not fit the blocks (has_blocks()).
struct Block {
  std::size_t entry = 0;
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32 = 0;
  /// Set if the block could not be read or inflated, if it does not match `%checksums`, or if
  /// check_whole() found that the CRC-32 of the entry differs.
  std::optional<Problem> problem;
  bool is_whole = false;  ///< checked by check_whole(), otherwise by check_stored()
};

class ArchiveVerifier {
 public:
  ArchiveVerifier(std::shared_ptr<Archive> archive, const VerifyRequest& request,
                  VerifyReport& report)
      : archive_(std::move(archive)),
        request_(request),
        report_(report),
        progress_(request.monitor, archive_->info().size_bytes, "verify") {}

  void run() {
    check_structure();
    read_lines();
    std::vector<Block> blocks = blocks_of_entries();
    os::parallel_for(
        blocks.size(), os::num_threads_for(request_.num_threads),
        [&](std::size_t i) { check(blocks[i]); }, [&] { progress_.poll(); });
    for (std::size_t first = 0; first < blocks.size();) first = check_block_run(blocks, first);
    for (const auto& [path, lines] : lines_) {
      if (archive_->find(path) || request_.skips(display_of(path))) continue;
      add(base::corrupt().problem("is missing").expected("a file with checksums"),
          {display_of(path), "file"});
    }
    progress_.finish();
  }

 private:
  std::string display_of(std::string_view name) const {
    return archive_->file().display() + "/" + std::string(name);
  }
  void add(const Error& error, const base::Where& where) {
    report_.problems.push_back(problem_of(error, where));
  }

  void check_structure() {
    try {
      codecs::check_zip_structure(archive_->input(), archive_->directory(),
                                  "refresh_archive_checksums corrects the checksum in the "
                                  "archive's comment");
    } catch (const Error& error) {
      if (!is_problem_of_files(error)) throw;
      add(error, {archive_->file().display(), "file"});
    }
  }

  void read_lines() {
    const auto number = archive_->find(kChecksumsName);
    if (!number) return;
    try {
      const auto text =
          root_of(archive_)->read_text(std::string(kChecksumsName), kMaxChecksumsBytes);
      for (ChecksumLine& line : parse_checksums(*text, display_of(kChecksumsName))) {
        // Skip lines for boxes (boxes.hpp): the CRC-32 covers the same bytes.
        if (line.box) continue;
        ++report_.num_checksums;
        lines_[line.path].push_back(std::move(line));
      }
    } catch (const Error& error) {
      if (!is_problem_of_files(error)) throw;
      add(error, {display_of(kChecksumsName), "file"});
    }
  }

  std::vector<Block> blocks_of_entries() const {
    std::vector<Block> blocks;
    for (std::size_t i = 0; i < archive_->entries().size(); ++i) {
      const codecs::ZipEntry& entry = archive_->entries()[i];
      if (request_.skips(display_of(entry.name))) continue;
      const bool is_whole = entry.method == codecs::ZipMethod::deflated || !has_blocks(entry);
      if (is_whole || entry.size_bytes == 0) {
        blocks.push_back({i, 0, entry.size_bytes, 0, {}, is_whole});
        continue;
      }
      for (std::uint64_t begin = 0; begin < entry.size_bytes; begin += kBlockBytes) {
        blocks.push_back({i, begin, std::min(kBlockBytes, entry.size_bytes - begin), 0, {}});
      }
    }
    return blocks;
  }

  /// True if each line of the entry in `%checksums` begins at the start of a block, and no two
  /// lines begin at the same block.
  bool has_blocks(const codecs::ZipEntry& entry) const {
    const auto lines = lines_.find(entry.name);
    if (lines == lines_.end()) return true;
    std::unordered_set<std::uint64_t> offsets;
    return std::ranges::all_of(lines->second, [&](const ChecksumLine& line) {
      const bool begins_block = line.offset_bytes == 0 || (line.offset_bytes % kBlockBytes == 0 &&
                                                           line.offset_bytes < entry.size_bytes);
      return begins_block && offsets.insert(line.offset_bytes).second;
    });
  }

  void check(Block& block) {
    const codecs::ZipEntry& entry = archive_->entries()[block.entry];
    try {
      if (block.is_whole) {
        check_whole(block, entry);
      } else {
        check_stored(block, entry);
      }
    } catch (const Error& error) {
      if (!is_problem_of_files(error)) throw;
      block.problem = problem_of(error, {display_of(entry.name), "file"});
    }
    progress_.add(entry.method == codecs::ZipMethod::deflated ? entry.stored_bytes
                                                              : block.size_bytes);
  }

  void check_stored(Block& block, const codecs::ZipEntry& entry) {
    const ChecksumLine* line = line_at(entry.name, block.begin);
    std::optional<base::Xxh3Stream> stream;
    if (line != nullptr && line->size_bytes == block.size_bytes) stream.emplace();
    std::vector<std::byte> scratch(
        static_cast<std::size_t>(std::min<std::uint64_t>(kCheckedPieceBytes, block.size_bytes)));
    for (std::uint64_t done = 0; done < block.size_bytes; done += scratch.size()) {
      const auto piece = std::span(scratch).first(static_cast<std::size_t>(
          std::min<std::uint64_t>(scratch.size(), block.size_bytes - done)));
      archive_->file().read_at(entry.data_offset + block.begin + done, piece);
      block.crc32 = codecs::crc32(piece, block.crc32);
      if (stream) stream->update(piece);
    }
    if (line == nullptr) return;
    compare(block, *line, stream ? std::optional(stream->digest()) : std::nullopt);
  }

  void check_whole(Block& block, const codecs::ZipEntry& entry) {
    std::vector<ChecksumLine> lines;
    if (const auto found = lines_.find(entry.name); found != lines_.end()) lines = found->second;
    std::ranges::sort(lines, {}, &ChecksumLine::offset_bytes);
    std::uint64_t end = 0;
    for (const ChecksumLine& line : lines) {
      if (!base::range_fits(line.offset_bytes, line.size_bytes, entry.size_bytes) ||
          line.offset_bytes < end) {
        compare(block, line, std::nullopt);
        lines.clear();
        break;
      }
      end = line.offset_bytes + line.size_bytes;
    }
    auto line = lines.begin();
    std::uint64_t at = 0;  // offset in the entry
    base::Xxh3Stream stream;
    const auto use = [&](std::span<const std::byte> piece) {
      while (!piece.empty() && line != lines.end() && line->offset_bytes <= at + piece.size()) {
        if (line->offset_bytes > at) {
          piece = piece.subspan(static_cast<std::size_t>(line->offset_bytes - at));
          at = line->offset_bytes;
        }
        const std::uint64_t left = line->offset_bytes + line->size_bytes - at;
        const auto part =
            piece.first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), left)));
        stream.update(part);
        piece = piece.subspan(part.size());
        at += part.size();
        if (part.size() < left) continue;
        if (!block.problem) compare(block, *line, stream.digest());
        stream.reset();
        ++line;
      }
      at += piece.size();
    };
    // Checks the CRC-32, too.
    codecs::check_zip_entry(archive_->input(), entry, use);
    block.crc32 = entry.crc32;
  }

  const ChecksumLine* line_at(std::string_view path, std::uint64_t offset) const {
    const auto lines = lines_.find(std::string(path));
    if (lines == lines_.end()) return nullptr;
    const auto found = std::ranges::find(lines->second, offset, &ChecksumLine::offset_bytes);
    return found == lines->second.end() ? nullptr : &*found;
  }

  void compare(Block& block, const ChecksumLine& line, std::optional<std::uint64_t> found) const {
    if (found && *found == line.checksum) return;
    block.problem =
        problem_of(base::corrupt(display_of(line.path))
                       .part("block ", line.offset_bytes / kBlockBytes)
                       .problem("the checksum of ", line.size_bytes, " bytes at offset ",
                                line.offset_bytes, " differs")
                       .expected(base::hex16(line.checksum))
                       .found(found ? base::hex16(*found) : "a block of another size or offset")
                       .remedy("the file is damaged or was changed"));
  }

  /// Reports the problems of the blocks of one entry, the first of which is `blocks[first]`. If no
  /// block has a problem, combines the CRC-32s of the blocks and compares the result with the
  /// CRC-32s in the headers of the entry. Ignores a 0 in the local header if the entry has a data
  /// descriptor. Returns the index of the first block of the next entry.
  std::size_t check_block_run(std::vector<Block>& blocks, std::size_t first) {
    const codecs::ZipEntry& entry = archive_->entries()[blocks[first].entry];
    std::uint32_t crc = 0;
    std::size_t at = first;
    bool failed = false;
    for (; at < blocks.size() && blocks[at].entry == blocks[first].entry; ++at) {
      crc = codecs::crc32_combine(crc, blocks[at].crc32, blocks[at].size_bytes);
      if (!blocks[at].problem) continue;
      failed = true;
      report_.problems.push_back(std::move(*blocks[at].problem));
    }
    ++report_.num_checksums;
    if (failed) return at;
    const bool is_in_descriptor = entry.has_descriptor && entry.local_crc32 == 0;
    if (crc == entry.crc32 && (is_in_descriptor || crc == entry.local_crc32)) return at;
    const std::uint32_t expected = crc == entry.crc32 ? entry.local_crc32 : entry.crc32;
    add(base::corrupt()
            .problem("CRC-32 differs")
            .expected(fmt::format("{:08x}", expected))
            .found(fmt::format("{:08x}", crc))
            .remedy("the archive is damaged, or a program that wrote to its shared mapping "
                    "crashed: if the bytes are right, refresh_archive_checksums corrects the "
                    "CRC-32"),
        {display_of(entry.name), "bytes"});
    return at;
  }

  std::shared_ptr<Archive> archive_;
  const VerifyRequest& request_;
  VerifyReport& report_;
  Progress progress_;
  std::unordered_map<std::string, std::vector<ChecksumLine>> lines_;  ///< by path
};

}  // namespace

VerifyReport verify_archive(const Path& path, const VerifyRequest& request) {
  VerifyReport report;
  try {
    const std::shared_ptr<Archive> archive = Archive::open(path, Mode::read);
    check_tree(root_of(archive), request, report);
    ArchiveVerifier(archive, request, report).run();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::file_not_found || !is_problem_of_files(error)) throw;
    report.problems.push_back(problem_of(error, {path.string(), "file"}));
  }
  return report;
}

}  // namespace tenfold::detail::formats::folder
