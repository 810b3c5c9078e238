#include "formats/safetensors/file.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "formats/shared/boxes.hpp"
#include "formats/shared/json_checksums.hpp"
#include "formats/shared/problem.hpp"

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
    throw base::unsupported()
        .problem("the header is too long")
        .expected("at most ", kMaxHeaderBytes, " bytes")
        .found(header.size() - 8)
        .remedy("save as a folder or in shards");
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
    blocks += base::num_checksum_blocks(tensor->leaf.nbytes());
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
    // The header is complete except for the checksums, in whose place it has zeros.
    std::vector<std::uint64_t> blocks;
    for (const LeafWrite& write : writes) {
      blocks.insert(blocks.end(), write.block_checksums.begin(), write.block_checksums.end());
    }
    fill_checksums(header, find_checksums(header), blocks);
  }
  file.write_at(0, std::as_bytes(std::span(header)));
}

bool is_saved_as(const os::File& saved, const FilePlan& file, int num_threads, Progress& progress) {
  Metadata metadata = file.plan.metadata;
  const std::string blank_text = blank_checksums(file.tensors);
  metadata.insert_or_assign(std::string(kChecksumsMember), blank_text);
  const std::string blank = header_of(file.tensors, metadata);
  std::uint64_t size_bytes = blank.size();
  for (const Plan::Tensor* tensor : file.tensors) size_bytes += tensor->leaf.nbytes();
  if (saved.size_bytes() != size_bytes) return false;
  std::string found(blank.size(), '\0');
  saved.read_at(0, std::as_writable_bytes(std::span(found)));
  const std::size_t text_at = find_checksums(blank);
  const std::string text = found.substr(text_at, blank_text.size());
  found.replace(text_at, blank_text.size(), blank_text);
  if (found != blank) return false;
  std::vector<LeafComparison> compared;
  std::size_t digits_at = blank_checksum_text(0).size() + 1;  // those of the header come first
  for (const Plan::Tensor* tensor : file.tensors) {
    LeafComparison comparison{&tensor->leaf, {}};
    for (std::uint64_t b = base::num_checksum_blocks(tensor->leaf.nbytes()); b > 0; --b) {
      const auto checksum = parse_hex16(std::string_view(text).substr(digits_at, 16));
      if (!checksum) return false;
      comparison.stored.push_back(*checksum);
      digits_at += 16;
    }
    compared.push_back(std::move(comparison));
  }
  compare_with_checksums(compared, CompareUntil::first_difference, num_threads, progress);
  return std::ranges::all_of(compared, &LeafComparison::is_equal);
}

namespace {

/// Returns the header as a document to check. `text` is the value of the metadata member `member`,
/// which contains the checksums.
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

base::Where place_of(const OpenedFile& opened, std::uint32_t entry) {
  return opened.source->where(
      stored_leaf(opened.header->entries[entry].dtype, {}, opened.source, entry));
}

/// Converts the boxes of one tensor from elements to bytes. Reports a problem and returns nullopt
/// if a box is empty or not inside the tensor.
std::optional<std::vector<BoxSum>> boxes_of(const OpenedFile& opened, std::uint32_t number,
                                            const std::vector<StoredBox>& stored,
                                            VerifyReport& report) {
  const Header::Entry& entry = opened.header->entries[number];
  const auto shape = opened.header->shape(number);
  std::vector<BoxSum> boxes;
  for (const StoredBox& box : stored) {
    const Box whole{Shape(shape.size(), 0), Shape(shape.begin(), shape.end())};
    auto bytes = byte_box(shape, itemsize(entry.dtype), box.box.value_or(whole));
    if (!bytes) {
      const Box& found = box.box.value_or(whole);
      report.problems.push_back(
          problem_of(base::corrupt(place_of(opened, number))
                         .problem("a checksum covers a box that is empty or not inside the tensor")
                         .expected("a box within shape ", base::list_text(shape))
                         .found("offsets ", base::list_text(found.offsets), " and sizes ",
                                base::list_text(found.sizes))
                         .remedy("another tool may have changed the file")));
      return std::nullopt;
    }
    boxes.push_back({std::move(*bytes), box.checksum});
  }
  return boxes;
}

/// Adds the boxes of an opened file to `tensors`, and counts their checksums. `text` is the value
/// of the metadata member kBoxesMember. Reports a problem if `text` does not fit the tensors, or if
/// the header does not match its checksum.
void plan_boxes(const OpenedFile& opened, std::string_view text, const VerifyRequest& request,
                VerifyReport& report, std::vector<BoxedTensor>& tensors) {
  const Header& header = *opened.header;
  const ChecksummedDocument document = document_of(opened, kBoxesMember, text);
  const auto stored = parse_boxes_text(text);
  if (!stored || stored->size() != header.entries.size()) {
    report.problems.push_back(problem_of(
        base::corrupt({document.path, document.member_part})
            .problem("does not fit the tensors")
            .expected("the boxes of ", header.entries.size(), " tensors")
            .found(stored ? "those of " + std::to_string(stored->size()) : "a text of another form")
            .remedy("another tool may have changed the file")));
    return;
  }
  check_document_hash(document, report);
  auto boxes = stored->begin();
  for (const std::uint32_t i : header.file_order()) {
    const std::vector<StoredBox>& of_tensor = *boxes++;
    report.num_checksums += of_tensor.size();
    const base::Where where = place_of(opened, i);
    const Header::Entry& entry = header.entries[i];
    if (request.skips(where.text())) continue;
    auto checks = boxes_of(opened, i, of_tensor, report);
    if (!checks || (checks->empty() && entry.begin == entry.end)) continue;
    tensors.push_back({&opened.source->file(), header.data_offset + entry.begin,
                       entry.end - entry.begin, where.part, std::move(*checks),
                       request.skips_of(where.text())});
  }
}

/// Returns the checksums of all blocks in file order; nullopt if the file has none, or if their
/// number does not fit the tensors. Reports a problem if the number does not fit, or if the header
/// does not match its checksum.
std::optional<std::vector<std::uint64_t>> checksums_of(const OpenedFile& opened,
                                                       VerifyReport& report) {
  const Header& header = *opened.header;
  const std::string* text = header.metadata_value(kChecksumsMember);
  if (text == nullptr) return std::nullopt;
  ChecksummedDocument document = document_of(opened, kChecksumsMember, *text);
  for (const auto& entry : header.entries) {
    document.num_blocks += base::num_checksum_blocks(entry.end - entry.begin);
  }
  return check_document(document, report);
}

/// Counts the leaves, bytes and checksums of an opened file, reports a header that does not match
/// its checksum, and adds the data to check to `blocks` or `boxes`.
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
    const base::Where where = place_of(opened, i);
    const std::string text = where.text();
    for (std::uint64_t begin = entry.begin; begin < entry.end; begin += base::kChecksumBlockBytes) {
      const std::uint64_t end = std::min(begin + base::kChecksumBlockBytes, entry.end);
      if (request.skips(text, begin - entry.begin, end - entry.begin)) {
        ++checksum;
        continue;
      }
      BlockCheck block;
      block.file = &file;
      block.offset_bytes = header.data_offset + begin;
      block.size_bytes = end - begin;
      block.expected = *checksum++;
      block.part = where.part;
      blocks.push_back(std::move(block));
    }
  }
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
        checksum + static_cast<std::ptrdiff_t>(base::num_checksum_blocks(entry.end - entry.begin));
    all[place_of(opened, i).text()].assign(checksum, end);
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
    add_problem(report, error, path);
  }
  return report;
}

}  // namespace tenfold::detail::formats::safetensors
