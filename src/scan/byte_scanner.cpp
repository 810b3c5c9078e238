#include "scan/byte_scanner.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/scan.hpp>

#include "base/text.hpp"
#include "codecs/pickle/imports.hpp"
#include "scan/risk.hpp"

namespace tenfold {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::string_view kZipMagic = "PK\x03\x04";
constexpr std::string_view kZipEnd = "PK\x05\x06";
constexpr std::string_view kNotScanned = ", which is not scanned";
/// Maximum nesting of archives in one file. The outermost archive is level 1.
constexpr int kMaxArchiveDepth = 8;
/// Maximum total inflated size of the deflated records in the nested archives of one file.
constexpr std::uint64_t kMaxInflatedBytes = std::uint64_t{4} << 30U;
/// Deflated records that are larger than this are not inflated.
constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{1} << 30U;
/// Greatest number of attempts by archives(), in all files of a scan, to parse bytes as an archive:
/// hostile bytes can look like the start of many archives.
constexpr std::uint64_t kMaxArchiveTries = 10'000;

/// Greatest number of findings that are listed: a record that deflates to 1 MB can contain 170
/// million pickles, each with a finding.
constexpr std::size_t kMaxFindings = 1'000'000;

/// Archive formats that are recognised but not unpacked.
struct Packed {
  std::string_view magic;
  std::string_view name;
};
constexpr auto kPacked = std::to_array<Packed>({{"\x1f\x8b\x08", "gzip"},
                                                {"BZh", "bzip2"},
                                                {"\xfd"
                                                 "7zXZ",
                                                 "xz"},
                                                {"7z\xbc\xaf\x27\x1c", "7z"},
                                                {"\x28\xb5\x2f\xfd", "zstd"},
                                                {"\x04\x22\x4d\x18", "lz4"},
                                                {"Rar!\x1a\x07", "rar"},
                                                {"\x1f\x9d", "compress (.Z)"}});

/// True if the bytes start with the opcode PROTO and a protocol number from 0 to 5, as pickles do
/// that Python writes in protocol 2 and later.
bool begins_as_pickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x80' && static_cast<unsigned char>(bytes[1]) <= 5;
}

/// The magic number in the first pickle of torch.save's legacy format (the default before torch
/// 1.6). Four more pickles follow, then the bytes of storages.
constexpr std::string_view kOldTorchNumber = "119547037146038801333356";
constexpr std::size_t kOldTorchPickles = 5;

bool is_old_torch_number(const codecs::PickleGraph& graph) {
  const codecs::PickleNode root = graph.at(graph.root);
  return root.kind == codecs::PickleKind::big_integer && root.text == kOldTorchNumber;
}

/// True for a tar header. As in torch.load, a correct checksum is sufficient.
bool begins_as_tar(std::string_view bytes) {
  constexpr std::size_t kHeaderBytes = 512;
  constexpr std::size_t kSumAt = 148;
  constexpr std::size_t kSumBytes = 8;
  if (bytes.size() < kHeaderBytes) return false;
  const std::string_view field = bytes.substr(kSumAt, kSumBytes);
  const bool is_octal = field[0] != '\x80' && field[0] != '\xff';
  std::int64_t written = 0;
  for (const char c : field.substr(is_octal ? 0 : 5)) {
    if (!is_octal) {
      written = written * 256 + static_cast<unsigned char>(c);
    } else if (c == '\0') {
      break;
    } else if (c >= '0' && c <= '7') {
      written = written * 8 + (c - '0');
    }
  }
  std::int64_t as_unsigned = 0;
  std::int64_t as_signed = 0;
  for (std::size_t i = 0; i < kHeaderBytes; ++i) {
    const char c = i - kSumAt < kSumBytes ? ' ' : bytes[i];
    as_unsigned += static_cast<unsigned char>(c);
    as_signed += static_cast<signed char>(c);
  }
  return written == as_unsigned || written == as_signed;
}

/// True if a .npy header may declare values that numpy would unpickle: the type "O", "object",
/// "Object0" (numpy 1.19) or "T" appears anywhere in the header, or may be hidden. The header is a
/// Python literal, which can hide the type by escapes, comments and concatenated strings.
bool may_hold_objects(std::string_view header) {
  if (header.find_first_of("\\#") != std::string_view::npos) return true;
  if (header.find("bject") != std::string_view::npos) return true;
  const auto is_letter = [&](std::size_t i) {
    const char c = i < header.size() ? header[i] : ' ';
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  bool ended = false;  // a string literal has ended; Python concatenates it with a literal that
                       // follows directly
  char quote = '\0';   // the quote of the current string literal
  for (std::size_t i = 0; i < header.size(); ++i) {
    const char c = header[i];
    if ((c == 'O' || c == 'T') && !is_letter(i + 1) && (i == 0 || !is_letter(i - 1))) return true;
    if (quote != '\0') {
      ended = c == quote;
      if (ended) quote = '\0';
    } else if (c == '\'' || c == '"') {
      if (ended) return true;
      quote = c;
    } else if (c == ',' || c == ':') {
      ended = false;
    }
  }
  return false;
}

/// Offset of the pickle in a .npy file that may contain objects; nullopt for other bytes.
std::optional<std::size_t> npy_objects(std::string_view bytes) {
  if (!bytes.starts_with(kNpyMagic) || bytes.size() < 12) return std::nullopt;
  const auto at = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[i]));
  };
  const bool wide = at(6) > 1;
  const std::size_t begin = wide ? 12 : 10;
  std::size_t size = at(8) | at(9) << 8U;
  if (wide) size |= at(10) << 16U | at(11) << 24U;
  if (size > bytes.size() - begin) return std::nullopt;
  const std::string_view header = bytes.substr(begin, size);
  if (!may_hold_objects(header)) return std::nullopt;
  return begin + size;
}

bool has_global(const codecs::PickleGraph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const codecs::PickleNode& node) {
    return node.kind == codecs::PickleKind::global;
  });
}

/// True for `archive/data/17` next to `archive/data.pkl`: torch.load only converts the bytes of a
/// storage to numbers.
bool is_storage(const codecs::ZipDirectory& directory, std::string_view name) {
  const std::size_t slash = name.rfind('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view folder = name.substr(0, slash);
  return (folder == "data" || folder.ends_with("/data")) &&
         std::ranges::all_of(name.substr(slash + 1), base::is_digit) &&
         directory.find(std::string(folder) + ".pkl") != nullptr;
}

std::string inside(const std::string& outer, const std::string& inner) {
  if (outer.empty() || inner.empty()) return outer + inner;
  return outer + ": " + inner;
}

}  // namespace

ScanHint hint_of_name(std::string_view name) {
  constexpr auto kSuffixes =
      std::to_array<std::string_view>({".pkl", ".pickle", ".pck", ".pcl", ".p", ".joblib", ".z"});
  const bool named = std::ranges::any_of(
      kSuffixes, [&](std::string_view suffix) { return name.ends_with(suffix); });
  if (named) return ScanHint::pickle;
  return name.ends_with(".memmap") ? ScanHint::tensor : ScanHint::none;
}

void ByteScanner::enter(std::string path, std::string shown) {
  path_ = std::move(path);
  shown_ = std::move(shown);
  depth_ = 0;
  inflated_bytes_ = 0;
  num_following_ = 0;
}

codecs::ZipDirectory ByteScanner::directory_of(const codecs::ZipInput& input) {
  return codecs::read_zip_directory(input, codecs::ZipLimits());
}

codecs::ZipInput ByteScanner::input_of(std::string_view bytes, const std::string& where) const {
  return codecs::zip_input(inside(path_, where), std::as_bytes(std::span(bytes)));
}

void ByteScanner::add(std::string what, ScanRisk risk, const std::string& where, std::uint64_t at) {
  std::vector<ScanFinding>& findings = report_.findings;
  if (findings.size() > kMaxFindings) {
    findings.back().risk = std::max(findings.back().risk, risk);
    return;
  }
  if (findings.size() == kMaxFindings) what = "more findings, which are not listed";
  std::string place = shown_.empty() ? "" : base::quote(shown_) + ": ";
  if (!where.empty()) place += where + " ";
  place += "at byte " + std::to_string(at);
  findings.push_back({std::move(what), risk, std::move(place)});
}

void ByteScanner::add(const Error& error, const std::string& where) {
  if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw error;
  add("archive that cannot be read: " + std::string(error.what()), ScanRisk::suspicious, where, 0);
}

void ByteScanner::globals(const codecs::PickleGraph& graph, const std::string& where,
                          std::uint64_t at) {
  std::map<std::string, bool, std::less<>> seen;
  for (const codecs::PickleNode node : graph.nodes) {
    std::string global;
    ScanRisk risk = ScanRisk::suspicious;
    if (node.kind == codecs::PickleKind::global) {
      global = std::string(node.text) + "." + std::string(node.name);
      risk = risk_of_global(node.text, node.name);
    } else if (node.kind == codecs::PickleKind::extension) {
      global = "extension code " + std::to_string(node.integer);
    } else {
      continue;
    }
    if (seen.emplace(global, true).second) add(std::move(global), risk, where, at + node.offset);
  }
}

/// Scans the consecutive pickles at the start of `bytes`. If `is_pickle` is true, reports bytes
/// that cannot be read as a pickle. If it is false, ignores such bytes unless they name a global.
void ByteScanner::pickles(std::string_view bytes, const std::string& where, bool is_pickle) {
  bool is_old_torch = false;
  std::uint64_t at = 0;
  for (std::size_t i = 0; at < bytes.size() && !(is_old_torch && i == kOldTorchPickles); ++i) {
    const std::string_view rest = bytes.substr(static_cast<std::size_t>(at));
    if (i > 0 && ++num_following_ > max_following_) {
      add("more than " + std::to_string(max_following_) +
              " pickles that directly follow another; the rest is not scanned",
          ScanRisk::suspicious, where, at);
      return;
    }
    std::string problem;
    const codecs::PickleGraph graph = codecs::read_pickle_prefix(rest, where, problem);
    const bool counts = problem.empty() || (i == 0 && is_pickle) || has_global(graph);
    if (!counts) {
      if (i > 0 && is_pickle) {
        add(std::to_string(rest.size()) + " bytes after a pickle that are not a pickle",
            ScanRisk::suspicious, where, at);
      }
      return;
    }
    ++report_.num_pickles;
    globals(graph, where, at);
    if (!problem.empty()) {
      add("pickle that cannot be read to its end: " + problem, ScanRisk::suspicious, where, at);
      return;
    }
    if (i == 0) is_old_torch = is_old_torch_number(graph);
    at += graph.size_bytes;
  }
}

/// Scans bytes of unknown content, which may be a pickle: pickles of protocols 0 and 1 have no
/// magic number. The bytes count as a pickle if unpickling could import something, even if the
/// unpickling would fail later.
void ByteScanner::guess(std::string_view bytes, const std::string& where) {
  if (codecs::may_import(bytes)) pickles(bytes, where, true);
}

/// Adds a finding for an archive other than zip, or for a compressed file, except where `hint`
/// makes a match of the magic number unreliable. Returns true if it added a finding for anything
/// but a tar archive. A pickle can contain the magic number of tar in a string, so the caller must
/// then try other kinds of content, too.
bool ByteScanner::packed(std::string_view bytes, const std::string& where, ScanHint hint) {
  if (hint == ScanHint::storage) return false;
  constexpr std::size_t kTarMagicAt = 257;
  const bool is_marked =
      bytes.size() > kTarMagicAt && bytes.substr(kTarMagicAt).starts_with("ustar");
  if ((is_marked && hint != ScanHint::tensor) || begins_as_tar(bytes)) {
    add("tar archive" + std::string(kNotScanned), ScanRisk::suspicious, where, 0);
    return false;
  }
  if (hint == ScanHint::tensor) return false;
  for (const Packed& format : kPacked) {
    if (!bytes.starts_with(format.magic)) continue;
    add(std::string(format.name) + " archive" + std::string(kNotScanned) +
            "; unpack it and scan what comes out",
        ScanRisk::suspicious, where, 0);
    return true;
  }
  // joblib and others write zlib streams, whose first two bytes are a weak magic number.
  const bool is_zlib =
      bytes.size() > 2 && bytes[0] == '\x78' &&
      (static_cast<unsigned char>(bytes[0]) * 256U + static_cast<unsigned char>(bytes[1])) % 31U ==
          0;
  if (!is_zlib || hint != ScanHint::pickle) return false;
  add("zlib stream" + std::string(kNotScanned), ScanRisk::suspicious, where, 0);
  return true;
}

void ByteScanner::any(std::string_view bytes, const std::string& where, ScanHint hint) {
  const bool is_zip = bytes.starts_with(kZipMagic) || bytes.starts_with(kZipEnd);
  if (is_zip && hint != ScanHint::storage) {
    zip(bytes, where);
  } else if (packed(bytes, where, hint)) {
    guess(bytes, where);  // a pickle can be crafted to start with the magic of an archive
  } else if (const auto objects = npy_objects(bytes)) {
    pickles(bytes.substr(*objects), where, true);
  } else if (hint == ScanHint::storage) {
    if (begins_as_pickle(bytes)) pickles(bytes, where, false);
  } else if (hint == ScanHint::pickle || (hint == ScanHint::none && begins_as_pickle(bytes))) {
    pickles(bytes, where, true);
  } else {
    guess(bytes, where);
  }
}

void ByteScanner::zip(std::string_view bytes, const std::string& where) {
  const codecs::ZipInput input = input_of(bytes, where);
  const codecs::ZipDirectory directory = directory_of(input);
  if (depth_ == kMaxArchiveDepth) {
    add("archive in an archive, " + std::to_string(depth_) + " deep" + std::string(kNotScanned),
        ScanRisk::suspicious, where, 0);
    return;
  }
  ++depth_;
  for (const codecs::ZipEntry& entry : directory.entries) {
    if (entry.size_bytes == 0) continue;
    const ScanHint hint =
        is_storage(directory, entry.name) ? ScanHint::storage : hint_of_name(entry.name);
    const std::string place = inside(where, "record " + base::quote(entry.name));
    try {
      if (entry.method == codecs::ZipMethod::stored) {
        const auto begin = static_cast<std::size_t>(entry.data_offset);
        any(bytes.substr(begin, static_cast<std::size_t>(entry.size_bytes)), place, hint);
        continue;
      }
      if (entry.size_bytes > kMaxRecordBytes) {
        if (hint == ScanHint::storage) continue;
        add("deflated record of more than 1 GiB" + std::string(kNotScanned), ScanRisk::suspicious,
            place, 0);
        continue;
      }
      if (depth_ > 1) inflated_bytes_ += entry.size_bytes;
      if (depth_ > 1 && inflated_bytes_ > kMaxInflatedBytes) {
        add("record beyond the first 4 GiB of nested archives" + std::string(kNotScanned),
            ScanRisk::suspicious, place, 0);
        continue;
      }
      // A program may unpickle a damaged record, so scan what can be inflated.
      const std::vector<std::byte> inflated = codecs::read_zip_entry_unchecked(input, entry);
      any({reinterpret_cast<const char*>(inflated.data()), inflated.size()}, place, hint);
    } catch (const Error& error) {
      add(error, place);
    }
  }
  --depth_;
}

/// Finds the end records of zip archives from left to right, and searches the bytes only once.
/// Hostile bytes can look like the start of many archives, and a search from each start to the end
/// of the file would take too long.
class ByteScanner::ZipEnds {
 public:
  explicit ZipEnds(std::string_view bytes) : bytes_(bytes) {}

  /// Returns the position of the end record with index `i` (from 0) among the end records at `at`
  /// or later; npos if there are fewer. `at` must not decrease from call to call.
  std::size_t find(std::size_t at, std::size_t i) {
    while (!ends_.empty() && ends_.front() < at) ends_.pop_front();
    while (ends_.size() <= i && next_ != std::string_view::npos) {
      next_ = bytes_.find(kZipEnd, std::max(next_, at));
      if (next_ != std::string_view::npos) ends_.push_back(next_++);
    }
    return i < ends_.size() ? ends_[i] : std::string_view::npos;
  }

 private:
  std::string_view bytes_;
  std::deque<std::size_t> ends_;
  std::size_t next_ = 0;  ///< where the search continues; npos: there are no more
};

/// Size of the archive that starts at the byte `begin`, whatever follows it; 0 if there is none, or
/// if none was found within the limits on attempts.
std::size_t ByteScanner::archive_bytes(std::string_view bytes, std::size_t begin, ZipEnds& ends,
                                       const std::string& where) {
  constexpr std::size_t kMaxEnds = 64;
  constexpr std::size_t kEndBytes = 22;
  if (!bytes.substr(begin).starts_with(kZipMagic)) return 0;
  for (std::size_t i = 0; i < kMaxEnds; ++i) {
    const std::size_t end = ends.find(begin, i);
    if (end == std::string_view::npos || bytes.size() - end < kEndBytes ||
        ++num_tries_ > kMaxArchiveTries) {
      return 0;
    }
    const auto at = [&](std::size_t k) { return static_cast<unsigned char>(bytes[end + k]); };
    const std::size_t past = end + kEndBytes + (at(20) | static_cast<std::size_t>(at(21)) << 8U);
    try {
      if (past <= bytes.size()) {
        directory_of(input_of(bytes.substr(begin, past - begin), where));
        return past - begin;
      }
    } catch (const Error& error) {
      // Data of the archive can contain the end-of-archive signature: try the next one.
      if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw;
    }
  }
  return 0;
}

void ByteScanner::no_archive(std::string_view bytes, const std::string& where, std::uint64_t at) {
  if (bytes.empty()) return;
  add(std::to_string(bytes.size()) + " bytes outside of archives, scanned only as a pickle",
      ScanRisk::suspicious, where, at);
  guess(bytes, inside(where, "bytes from " + std::to_string(at) + " on"));
}

bool ByteScanner::archives(std::string_view bytes, const std::string& where) {
  ZipEnds ends(bytes);
  bool found = false;
  std::size_t other = 0;  // start of the current bytes that are not in an archive
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::string place = inside(where, "archive at byte " + std::to_string(at));
    const std::size_t size = archive_bytes(bytes, at, ends, place);
    if (size == 0) {
      at = std::min(bytes.find(kZipMagic, at + 1), bytes.size());
      continue;
    }
    no_archive(bytes.substr(other, at - other), where, other);
    zip(bytes.substr(at, size), place);
    found = true;
    at += size;
    other = at;
  }
  if (found) no_archive(bytes.substr(other), where, other);
  return found;
}

}  // namespace tenfold
