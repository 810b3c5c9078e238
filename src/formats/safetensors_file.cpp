#include "formats/safetensors_file.hpp"

#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checksum.hpp"

namespace tenfold {
namespace {

constexpr std::size_t kDigits = 16;

std::uint64_t num_blocks(std::uint64_t size_bytes) {
  return size_bytes / base::kChecksumBlockBytes +
         (size_bytes % base::kChecksumBlockBytes != 0 ? 1 : 0);
}

std::optional<std::uint64_t> parse_digits(std::string_view digits) {
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  // Written one way only, so that a flipped bit is never another spelling of the same number.
  if (!whole || base::hex16(value) != digits) return std::nullopt;
  return value;
}

}  // namespace

std::string safetensors_header_of(const std::vector<const SafetensorsPlan::Tensor*>& tensors,
                                  const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsTensor> rows;
  rows.reserve(tensors.size());
  for (const SafetensorsPlan::Tensor* tensor : tensors) {
    rows.push_back(
        {tensor->name, tensor->leaf.dtype(), tensor->leaf.shape(), tensor->leaf.nbytes()});
  }
  std::string header = write_safetensors_header(rows, metadata);
  if (header.size() - 8 > kMaxSafetensorsHeaderBytes) {
    throw Error(ErrorCode::unsupported, "safetensors: the header is too long: expected at most " +
                                            std::to_string(kMaxSafetensorsHeaderBytes) +
                                            " bytes, found " + std::to_string(header.size() - 8) +
                                            "; save as a folder or in shards");
  }
  return header;
}

std::string blank_checksums(const std::vector<const SafetensorsPlan::Tensor*>& tensors) {
  std::uint64_t blocks = 0;
  for (const SafetensorsPlan::Tensor* tensor : tensors) blocks += num_blocks(tensor->leaf.nbytes());
  std::string text(kDigits, '0');
  if (blocks > 0) text += ' ' + std::string(static_cast<std::size_t>(blocks) * kDigits, '0');
  return text;
}

std::size_t find_checksums(std::string_view json) noexcept {
  // A quote inside a string has a backslash before it, and after one that ends a string comes no
  // letter: so this is the start of a member.
  constexpr std::string_view kMember = "\"tenfold_xxh3\":";
  for (std::size_t at = json.find(kMember); at != std::string_view::npos;
       at = json.find(kMember, at + 1)) {
    if (at > 0 && json[at - 1] == '\\') continue;
    at = json.find_first_not_of(' ', at + kMember.size());
    if (at == std::string_view::npos || json[at] != '"' || json.size() - at < 1 + kDigits) break;
    return at + 1;
  }
  return std::string_view::npos;
}

std::uint64_t hash_with_blank_digits(std::string text, std::size_t digits_at) {
  text.replace(digits_at, kDigits, kDigits, '0');
  return base::xxh3(std::as_bytes(std::span(text)));
}

void write_safetensors_file(os::File& file,
                            const std::vector<const SafetensorsPlan::Tensor*>& tensors,
                            SafetensorsMetadata metadata, const WriteRequest& request,
                            Progress& progress) {
  if (request.checksums) {
    metadata.insert_or_assign(std::string(kChecksumsMember), blank_checksums(tensors));
  }
  std::string header = safetensors_header_of(tensors, metadata);
  std::vector<LeafWrite> writes;
  writes.reserve(tensors.size());
  std::uint64_t offset = header.size();
  for (const SafetensorsPlan::Tensor* tensor : tensors) {
    const std::uint64_t size = tensor->leaf.nbytes();
    writes.push_back({&tensor->leaf, &file, offset, size, {}});
    offset += size;
  }
  write_leaves(writes, request.checksums, request.num_threads, progress, request.durable);
  if (request.checksums) {
    // The header is known but for the digits, which take the places kept for them.
    const std::size_t header_digits = find_checksums(header);
    std::size_t at = header_digits + kDigits + 1;
    for (const LeafWrite& write : writes) {
      for (const std::uint64_t checksum : write.block_checksums) {
        header.replace(at, kDigits, base::hex16(checksum));
        at += kDigits;
      }
    }
    header.replace(header_digits, kDigits,
                   base::hex16(hash_with_blank_digits(header, header_digits)));
  }
  file.write_at(0, std::as_bytes(std::span(header)));
}

void plan_verification(const OpenedSafetensors& opened, VerifyReport& report,
                       std::vector<BlockCheck>& blocks) {
  const SafetensorsHeader& header = *opened.header;
  const os::File& file = opened.source->file();
  report.num_leaves += header.entries.size();
  report.num_bytes += header.data_bytes;
  const std::string* text = header.metadata_value(kChecksumsMember);
  if (text == nullptr) return;

  std::uint64_t expected_blocks = 0;
  for (const auto& entry : header.entries) expected_blocks += num_blocks(entry.end - entry.begin);
  const std::uint64_t expected_size =
      kDigits + (expected_blocks > 0 ? 1 + expected_blocks * kDigits : 0);
  const std::string part = "__metadata__ \"tenfold_xxh3\"";
  if (text->size() != expected_size) {
    report.problems.push_back({file.display(), part,
                               "does not fit the tensors: expected " +
                                   std::to_string(expected_size) + " characters, found " +
                                   std::to_string(text->size()) +
                                   "; another tool may have changed the file"});
    return;
  }

  std::string bytes(header.data_offset, '\0');
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  const std::size_t digits_at = find_checksums(bytes);
  const auto stored = parse_digits(std::string_view(*text).substr(0, kDigits));
  ++report.num_checksums;
  if (digits_at == std::string::npos || !stored) {
    report.problems.push_back({file.display(), part,
                               "cannot be read: expected hexadecimal digits as tenfold writes "
                               "them, found others; another tool may have changed the file"});
  } else if (const std::uint64_t found = hash_with_blank_digits(bytes, digits_at);
             found != *stored) {
    report.problems.push_back({file.display(), "header",
                               "the checksum of " + std::to_string(bytes.size()) +
                                   " bytes at offset 0 differs: expected " + base::hex16(*stored) +
                                   ", found " + base::hex16(found) +
                                   "; the file is damaged or was changed"});
  }

  std::size_t at = kDigits + 1;
  for (const std::uint32_t i : header.file_order()) {
    const SafetensorsHeader::Entry& entry = header.entries[i];
    Leaf leaf(entry.dtype, {}, opened.source, i);
    for (std::uint64_t begin = entry.begin; begin < entry.end; begin += base::kChecksumBlockBytes) {
      const auto digits = parse_digits(std::string_view(*text).substr(at, kDigits));
      at += kDigits;
      BlockCheck block;
      block.file = &file;
      block.offset_bytes = header.data_offset + begin;
      block.size_bytes = std::min(base::kChecksumBlockBytes, entry.end - begin);
      block.expected = digits.value_or(0);
      block.part = opened.source->where(leaf).substr(file.display().size() + 2);
      blocks.push_back(std::move(block));
    }
  }
  report.num_checksums += expected_blocks;
}

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

}  // namespace tenfold
