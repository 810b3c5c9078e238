#include "formats/safetensors/file.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "formats/shared/boxes.hpp"
#include "formats/shared/json_checksums.hpp"

namespace tenfold::detail::formats::safetensors {

FilePlan plan_file(const TensorDict& tree, bool notes) {
  FilePlan file{make_plan(tree, notes), {}};
  for (const std::size_t i : reference_order(file.plan.tensors)) {
    file.tensors.push_back(&file.plan.tensors[i]);
  }
  if (file.plan.flat && notes) {
    std::vector<std::string_view> names;
    names.reserve(file.tensors.size());
    for (const auto* tensor : file.tensors) names.push_back(tensor->name);
    add_order(file.plan, names);
  }
  return file;
}

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

void pad_header(std::string& header, std::uint64_t size_bytes) {
  header.resize(static_cast<std::size_t>(size_bytes), ' ');
  for (std::size_t i = 0; i < 8; ++i) {
    header[i] = static_cast<char>(((size_bytes - 8) >> (8 * i)) & 0xFF);
  }
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
    fill_checksums(header, find_checksums(header), blocks);
  }
  file.write_at(0, std::as_bytes(std::span(header)));
}

namespace {

/// The header of a file with the member that holds its checksums.
ChecksummedDocument document_of(const OpenedFile& opened, std::string_view member,
                                std::string_view text) {
  const os::File& file = opened.source->file();
  ChecksummedDocument document{file.display(),
                               "__metadata__ \"" + std::string(member) + "\"",
                               "header",
                               0,
                               std::string(opened.header->data_offset, '\0'),
                               text,
                               std::string::npos};
  file.read_at(0, std::as_writable_bytes(std::span(document.bytes)));
  document.digits_at = find_checksums(document.bytes, member);
  return document;
}

/// "m.safetensors: tensor \"w\"".
std::string place_of(const OpenedFile& opened, std::uint32_t entry) {
  return opened.source->where(Leaf(opened.header->entries[entry].dtype, {}, opened.source, entry));
}

/// The boxes of one tensor; nothing, with a problem reported, if they do not fit it.
std::optional<std::vector<BoxSum>> boxes_of(const OpenedFile& opened, std::uint32_t number,
                                            const std::vector<StoredBox>& stored,
                                            const std::string& part, VerifyReport& report) {
  const Header::Entry& entry = opened.header->entries[number];
  const auto shape = opened.header->shape(number);
  std::vector<BoxSum> boxes;
  for (const StoredBox& box : stored) {
    const Box whole{Shape(shape.size(), 0), Shape(shape.begin(), shape.end())};
    auto bytes = byte_box(shape, itemsize(entry.dtype), box.box.value_or(whole));
    if (!bytes) {
      report.problems.push_back(
          {opened.source->file().display(), part,
           "a box of its checksums lies outside of the tensor: expected one within " +
               base::list_text(shape) + ", found " +
               base::list_text(box.box.value_or(whole).offsets) + " + " +
               base::list_text(box.box.value_or(whole).sizes) +
               "; another tool may have changed the file"});
      return std::nullopt;
    }
    boxes.push_back({std::move(*bytes), box.checksum});
  }
  return boxes;
}

/// As plan_verification(), of a file with checksums of boxes.
void plan_boxes(const OpenedFile& opened, std::string_view text, const VerifyRequest& request,
                VerifyReport& report, std::vector<BoxedTensor>& tensors) {
  const Header& header = *opened.header;
  const ChecksummedDocument document = document_of(opened, kBoxesMember, text);
  const auto stored = parse_boxes_text(text);
  if (!stored || stored->size() != header.entries.size()) {
    report.problems.push_back(
        {document.path, document.member_part,
         "does not fit the tensors: expected the boxes of " +
             std::to_string(header.entries.size()) + " tensors, found " +
             (stored ? "those of " + std::to_string(stored->size()) : "another text") +
             "; another tool may have changed the file"});
    return;
  }
  check_document_hash(document, report);
  auto boxes = stored->begin();
  for (const std::uint32_t i : header.file_order()) {
    const std::vector<StoredBox>& of_tensor = *boxes++;
    report.num_checksums += of_tensor.size();
    const std::string where = place_of(opened, i);
    const Header::Entry& entry = header.entries[i];
    if (request.skips(where)) continue;
    const std::string part = where.substr(document.path.size() + 2);
    auto checks = boxes_of(opened, i, of_tensor, part, report);
    if (!checks || (checks->empty() && entry.begin == entry.end)) continue;
    tensors.push_back({&opened.source->file(), header.data_offset + entry.begin,
                       entry.end - entry.begin, part, std::move(*checks)});
  }
}

/// Reports a header that differs from its checksum. The checksums of all blocks in the order of the
/// file; nothing if it has none.
std::optional<std::vector<std::uint64_t>> checksums_of(const OpenedFile& opened,
                                                       VerifyReport& report) {
  const Header& header = *opened.header;
  const std::string* text = header.metadata_value(kChecksumsMember);
  if (text == nullptr) return std::nullopt;
  ChecksummedDocument document = document_of(opened, kChecksumsMember, *text);
  for (const auto& entry : header.entries) {
    document.num_blocks += num_checksum_blocks(entry.end - entry.begin);
  }
  return check_document(document, report);
}

/// Counts the leaves, bytes and checksums of an opened file, reports a header that differs from
/// its checksum, and adds what is to be checked of the data to `blocks` or `boxes`.
void plan_verification(const OpenedFile& opened, const VerifyRequest& request, VerifyReport& report,
                       std::vector<BlockCheck>& blocks, std::vector<BoxedTensor>& boxes) {
  const Header& header = *opened.header;
  const os::File& file = opened.source->file();
  report.num_leaves += header.entries.size();
  report.num_bytes += header.data_bytes;
  if (const std::string* text = header.metadata_value(kBoxesMember)) {
    plan_boxes(opened, *text, request, report, boxes);
  }
  const auto checksums = checksums_of(opened, report);
  if (!checksums) return;

  auto checksum = checksums->begin();
  for (const std::uint32_t i : header.file_order()) {
    const Header::Entry& entry = header.entries[i];
    const std::string where = place_of(opened, i);
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
    std::vector<BoxedTensor> boxes;
    for (const OpenedFile& file : files) {
      plan_verification(file, request, report, blocks, boxes);
    }
    Progress progress(request.monitor, report.num_bytes, path.filename().string());
    for (Problem& problem : check_blocks(blocks, request.num_threads, progress)) {
      report.problems.push_back(std::move(problem));
    }
    for (Problem& problem : check_boxes(std::move(boxes), request.num_threads, progress)) {
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
