#include "formats/safetensors/file.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/hash/checksum.hpp"
#include "formats/shared/json_checksums.hpp"

namespace tenfold::detail::formats::safetensors {
std::string header_of(const std::vector<const Plan::Tensor*>& tensors, const Metadata& metadata) {
  std::vector<TensorEntry> rows;
  rows.reserve(tensors.size());
  for (const Plan::Tensor* tensor : tensors) {
    rows.push_back(
        {tensor->name, tensor->leaf.dtype(), tensor->leaf.shape(), tensor->leaf.nbytes()});
  }
  std::string header = write_header(rows, metadata);
  if (header.size() - 8 > kMaxHeaderBytes) {
    throw Error(ErrorCode::unsupported, "safetensors: the header is too long: expected at most " +
                                            std::to_string(kMaxHeaderBytes) + " bytes, found " +
                                            std::to_string(header.size() - 8) +
                                            "; save as a folder or in shards");
  }
  return header;
}

std::string blank_checksums(const std::vector<const Plan::Tensor*>& tensors) {
  std::uint64_t blocks = 0;
  for (const Plan::Tensor* tensor : tensors) {
    blocks += num_checksum_blocks(tensor->leaf.nbytes());
  }
  return blank_checksum_text(blocks);
}

void write_file(os::File& file, const std::vector<const Plan::Tensor*>& tensors, Metadata metadata,
                const WriteRequest& request, Progress& progress) {
  if (request.checksums) {
    metadata.insert_or_assign(std::string(kChecksumsMember), blank_checksums(tensors));
  }
  std::string header = header_of(tensors, metadata);
  std::vector<LeafWrite> writes;
  writes.reserve(tensors.size());
  std::uint64_t offset = header.size();
  for (const Plan::Tensor* tensor : tensors) {
    const std::uint64_t size = tensor->leaf.nbytes();
    writes.push_back({&tensor->leaf, &file, offset, size, {}});
    offset += size;
  }
  write_leaves(writes, xxh3_if(request.checksums), request.num_threads, progress, request.durable);
  if (request.checksums) {
    // The header is known but for the digits, which take the places kept for them.
    std::vector<std::uint64_t> blocks;
    for (const LeafWrite& write : writes) {
      blocks.insert(blocks.end(), write.block_checksums.begin(), write.block_checksums.end());
    }
    fill_checksums(header, blocks);
  }
  file.write_at(0, std::as_bytes(std::span(header)));
}

namespace {

/// Reports a header that differs from its checksum. The checksums of all blocks in the order of the
/// file; nothing if it has none.
std::optional<std::vector<std::uint64_t>> checksums_of(const OpenedFile& opened,
                                                       VerifyReport& report) {
  const Header& header = *opened.header;
  const os::File& file = opened.source->file();
  const std::string* text = header.metadata_value(kChecksumsMember);
  if (text == nullptr) return std::nullopt;

  ChecksummedDocument document{file.display(),
                               "__metadata__ \"tenfold_xxh3\"",
                               "header",
                               0,
                               std::string(header.data_offset, '\0'),
                               *text};
  for (const auto& entry : header.entries) {
    document.num_blocks += num_checksum_blocks(entry.end - entry.begin);
  }
  file.read_at(0, std::as_writable_bytes(std::span(document.bytes)));
  return check_document(document, report);
}

/// Counts the leaves, bytes and checksums of an opened file, reports a header that differs from
/// its checksum, and adds the data's blocks that are asked for to `blocks`.
void plan_verification(const OpenedFile& opened, const VerifyRequest& request, VerifyReport& report,
                       std::vector<BlockCheck>& blocks) {
  const Header& header = *opened.header;
  const os::File& file = opened.source->file();
  report.num_leaves += header.entries.size();
  report.num_bytes += header.data_bytes;
  const auto checksums = checksums_of(opened, report);
  if (!checksums) return;

  auto checksum = checksums->begin();
  for (const std::uint32_t i : header.file_order()) {
    const Header::Entry& entry = header.entries[i];
    const std::string where = opened.source->where(Leaf(entry.dtype, {}, opened.source, i));
    if (request.skips(where)) {
      checksum += static_cast<std::ptrdiff_t>(num_checksum_blocks(entry.end - entry.begin));
      continue;
    }
    for (std::uint64_t begin = entry.begin; begin < entry.end; begin += base::kChecksumBlockBytes) {
      BlockCheck block;
      block.file = &file;
      block.offset_bytes = header.data_offset + begin;
      block.size_bytes = std::min(base::kChecksumBlockBytes, entry.end - begin);
      block.expected = *checksum++;
      block.part = where.substr(file.display().size() + 2);
      blocks.push_back(std::move(block));
    }
  }
}

/// `message` of an error about `path` as a problem: path, part and what are told apart.
Problem problem_of(const std::string& message, const Path& path) {
  std::string_view rest = message;
  const std::string prefix = path.string() + ": ";
  Problem problem{path.string(), "", ""};
  if (rest.starts_with(prefix)) rest.remove_prefix(prefix.size());
  // The part ends at the first ": " outside quotes.
  bool quoted = false;
  for (std::size_t i = 0; i + 1 < rest.size(); ++i) {
    if (rest[i] == '\\') {
      ++i;
    } else if (rest[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && rest[i] == ':' && rest[i + 1] == ' ') {
      problem.part = rest.substr(0, i);
      rest.remove_prefix(i + 2);
      break;
    }
  }
  problem.what = rest;
  return problem;
}

}  // namespace

ChecksumsByLeaf tensor_checksums(const OpenedFile& opened, VerifyReport& report) {
  ChecksumsByLeaf all;
  const auto checksums = checksums_of(opened, report);
  if (!checksums) return all;
  auto checksum = checksums->begin();
  for (const std::uint32_t i : opened.header->file_order()) {
    const Header::Entry& entry = opened.header->entries[i];
    const auto end =
        checksum + static_cast<std::ptrdiff_t>(num_checksum_blocks(entry.end - entry.begin));
    all[opened.source->where(Leaf(entry.dtype, {}, opened.source, i))].assign(checksum, end);
    checksum = end;
  }
  return all;
}

VerifyReport verify_file(const Path& path, const VerifyRequest& request,
                         const std::function<std::vector<OpenedFile>(VerifyReport&)>& open) {
  VerifyReport report;
  try {
    const std::vector<OpenedFile> files = open(report);
    std::vector<BlockCheck> blocks;
    for (const OpenedFile& file : files) {
      plan_verification(file, request, report, blocks);
    }
    Progress progress(request.monitor, report.num_bytes, path.filename().string());
    for (Problem& problem : check_blocks(blocks, request.num_threads, progress)) {
      report.problems.push_back(std::move(problem));
    }
    progress.finish();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw;
    report.problems.push_back(problem_of(error.what(), path));
  }
  return report;
}

}  // namespace tenfold::detail::formats::safetensors
