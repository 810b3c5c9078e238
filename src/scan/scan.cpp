#include <tenfold/scan.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "formats/dcp/metadata.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/memory/mapping.hpp"
#include "scan/byte_scanner.hpp"

namespace tenfold {

using namespace detail;
namespace {

/// A byte range in a file of torch.distributed.checkpoint, and the key whose data it contains.
struct ScanItem {
  std::uint64_t begin = 0;
  std::uint64_t size_bytes = 0;
  std::string key;
};
using ScanItems = std::map<os::Path, std::vector<ScanItem>>;  ///< by file

/// Adds the locations of the items that a checkpoint's metadata lists. Adds none if the metadata
/// cannot be read, is damaged or is not supported; scan_file() then searches the checkpoint's files
/// for archives.
void add_items(ScanItems& items, const os::Path& metadata) {
  try {
    const os::File file = os::File::open_read(metadata);
    constexpr std::uint64_t kMaxMetadataBytes = std::uint64_t{1} << 30U;
    const formats::dcp::Metadata read =
        detail::formats::dcp::parse_metadata(file.read_all(kMaxMetadataBytes), file.display());
    const auto add = [&](const std::string& key, const formats::dcp::Item& item) {
      const os::Path path = metadata.parent_path() / read.files[item.file];
      items[path].push_back({item.begin, item.size_bytes, key});
    };
    for (const formats::dcp::Entry& entry : read.entries) {
      if (const auto* tensor = std::get_if<formats::dcp::TensorEntry>(&entry.what)) {
        for (const formats::dcp::Chunk& chunk : tensor->chunks) add(entry.name, chunk.item);
      } else {
        add(entry.name, std::get<formats::dcp::Item>(entry.what));
      }
    }
  } catch (const Error& error) {
    // scan_file() reports metadata that cannot be read.
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported &&
        error.code() != ErrorCode::io && error.code() != ErrorCode::file_not_found) {
      throw;
    }
  }
}

/// Scans bytes that no item covers. tenfold does not read them, but other programs may. Returns
/// false if `bytes` is not empty and contains no archive.
bool scan_between(ByteScanner& scanner, std::string_view bytes, std::uint64_t begin) {
  const std::string where = "bytes from " + std::to_string(begin) + " on, which no key names";
  if (bytes.empty() || scanner.archives(bytes, where)) return true;
  scanner.add(std::to_string(bytes.size()) + " bytes that no key names, scanned only as a pickle",
              ScanRisk::suspicious, "", begin);
  scanner.guess(bytes, where);
  return false;
}

/// Scans the items of a file, and the bytes outside of them. Returns true if the items are within
/// the file and do not overlap, each item starts like a zip archive, and each non-empty range
/// before, between or after them contains a zip archive. If the result is false, the caller must
/// also scan the file as a whole: a pickle or an archive that other programs read without the
/// metadata may extend over several items.
bool scan_items(ByteScanner& scanner, std::string_view bytes, std::vector<ScanItem> items) {
  const auto range = [](const ScanItem& item) { return std::pair(item.begin, item.size_bytes); };
  std::ranges::stable_sort(items, {}, range);
  const auto repeated = std::ranges::unique(items, {}, range);
  items.erase(repeated.begin(), repeated.end());
  bool are_archives = true;
  std::uint64_t done = 0;
  for (const ScanItem& item : items) {
    if (item.begin > bytes.size() || item.size_bytes > bytes.size() - item.begin) {
      scanner.add("item of the key " + base::quote(item.key) + " that is beyond the file's end",
                  ScanRisk::suspicious, "", item.begin);
      are_archives = false;
      continue;
    }
    // An overlapping item is not scanned: scanning many of them would take too long.
    if (item.begin < done) {
      scanner.add("item of the key " + base::quote(item.key) + " that overlaps another",
                  ScanRisk::suspicious, "", item.begin);
      are_archives = false;
      continue;
    }
    are_archives &= scan_between(scanner, bytes.substr(done, item.begin - done), done);
    const std::string where = "key " + base::quote(item.key);
    const std::string_view content = bytes.substr(item.begin, item.size_bytes);
    are_archives = are_archives && content.starts_with("PK\x03\x04");
    try {
      scanner.any(content, where, ScanHint::none);
    } catch (const Error& error) {
      scanner.add(error, where);
    }
    done = item.begin + item.size_bytes;
  }
  are_archives &= scan_between(scanner, bytes.substr(done), done);
  return are_archives;
}

/// True if the bytes end with the end record of a zip archive and its comment. The archive may
/// start after other bytes, such as a script that unpacks it.
bool ends_as_zip(std::string_view bytes) {
  constexpr std::size_t kEndBytes = 22;
  constexpr std::size_t kMaxCommentBytes = 0xFFFF;
  const std::string_view last =
      bytes.substr(bytes.size() - std::min(bytes.size(), kEndBytes + kMaxCommentBytes));
  for (std::size_t at = 0; (at = last.find("PK\x05\x06", at)) != std::string_view::npos; ++at) {
    const std::string_view end = last.substr(at);
    if (end.size() < kEndBytes) return false;
    const auto low = static_cast<unsigned char>(end[kEndBytes - 2]);
    const auto high = static_cast<unsigned char>(end[kEndBytes - 1]);
    if (end.size() - kEndBytes == (low | static_cast<std::size_t>(high) << 8U)) return true;
  }
  return false;
}

void scan_file(ByteScanner& scanner, const os::Path& path, const ScanItems& items) {
  const os::File file = os::File::open_read(path);
  if (file.size_bytes() == 0) return;
  const Buffer whole = os::map_file(file, 0, file.size_bytes(), os::MapKind::read_only);
  const std::string_view bytes(reinterpret_cast<const char*>(whole.data()), whole.size_bytes());
  const auto found = items.find(path);
  if (found != items.end() && scan_items(scanner, bytes, found->second)) return;
  try {
    scanner.any(bytes, "", hint_of_name(path.string()));
  } catch (const Error& error) {
    // Without its metadata, a file of torch.distributed.checkpoint is a sequence of archives.
    if (error.code() != ErrorCode::corrupt || !scanner.archives(bytes, "")) throw;
    return;
  }
  if (found != items.end() || bytes.starts_with("PK")) return;
  const bool is_checkpoint = path.extension() == ".distcp";
  if ((is_checkpoint || ends_as_zip(bytes)) && !scanner.archives(bytes, "")) {
    scanner.add(std::string(is_checkpoint ? "checkpoint without its .metadata"
                                          : "zip archive that starts after the file's beginning") +
                    ", which is not scanned",
                ScanRisk::suspicious, "", 0);
  }
}

/// The files below a folder, sorted by path.
struct ScanFolder {
  std::vector<os::Path> files;
  std::vector<std::pair<os::Path, std::string>> skipped;  ///< entries not scanned, and why
};

/// True if `link` leads to `root` or into it, so that the scan of `root` includes its target.
bool leads_into(const os::Path& link, const os::Path& root) {
  std::error_code failure;
  const os::Path target = std::filesystem::canonical(link, failure);
  const os::Path folder = failure ? os::Path() : std::filesystem::canonical(root, failure);
  return !failure && std::ranges::mismatch(folder, target).in1 == folder.end();
}

/// The regular files below a folder, including links to files. Links to folders are not followed,
/// because they may form a cycle; dangling links are ignored. `skipped` gets every link to a folder
/// outside `root`, every sub-folder that cannot be listed, and every other entry whose type, or
/// whose link target's type, cannot be determined. Throws Error(io) if `root` cannot be listed.
ScanFolder files_in(const os::Path& root) {
  constexpr std::string_view kUnlisted = "folder that cannot be listed, or entry of unknown type: ";
  ScanFolder found;
  std::vector<os::Path> folders = {root};
  while (!folders.empty()) {
    const os::Path folder = std::move(folders.back());
    folders.pop_back();
    std::error_code failure;
    auto entry = std::filesystem::directory_iterator(folder, failure);
    for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
      std::error_code unknown;
      if (entry->is_regular_file(unknown)) {
        found.files.push_back(entry->path());
        continue;
      }
      const bool is_dangling =
          unknown == std::errc::no_such_file_or_directory || unknown == std::errc::not_a_directory;
      std::error_code ignored;
      if (entry->is_symlink(ignored) && (!unknown || is_dangling)) {
        if (entry->is_directory(ignored) && !leads_into(entry->path(), root)) {
          found.skipped.emplace_back(
              entry->path(), "link that leads out of the scanned folder and is not followed");
        }
        continue;
      }
      if (unknown) {
        found.skipped.emplace_back(entry->path(), std::string(kUnlisted) + unknown.message());
      } else if (entry->is_directory(ignored)) {
        folders.push_back(entry->path());
      }
    }
    if (!failure) continue;
    if (folder == root) throw Error::io(failure.value(), root.string()).problem("cannot be listed");
    found.skipped.emplace_back(folder, std::string(kUnlisted) + failure.message());
  }
  std::ranges::sort(found.files);
  std::ranges::sort(found.skipped);
  return found;
}

/// Scans all files below `folder`. A file or sub-folder that cannot be read is a finding, and does
/// not stop the scan. Throws Error(io) if `folder` itself cannot be listed.
void scan_folder(ByteScanner& scanner, const os::Path& folder) {
  const auto [files, skipped] = files_in(folder);
  for (const auto& [path, reason] : skipped) {
    scanner.enter(path.string(), path.lexically_relative(folder).string());
    scanner.add(reason, ScanRisk::suspicious, "", 0);
  }
  ScanItems items;
  for (const os::Path& file : files) {
    const std::string name = file.filename().string();
    if (name == ".metadata" || (name.starts_with("__") && name.ends_with(".metadata"))) {
      add_items(items, file);
    }
  }
  for (const os::Path& file : files) {
    scanner.enter(file.string(), file.lexically_relative(folder).string());
    try {
      scan_file(scanner, file, items);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io || error.code() == ErrorCode::file_not_found) {
        scanner.add("file that cannot be read: " + std::string(error.what()), ScanRisk::suspicious,
                    "", 0);
      } else {
        scanner.add(error, "");
      }
    }
  }
}

}  // namespace

std::string to_string(ScanRisk risk) {
  constexpr std::array<std::string_view, 3> kNames = {"safe", "suspicious", "dangerous"};
  return std::string(kNames[static_cast<std::size_t>(risk)]);
}

bool ScanReport::safe() const noexcept {
  return std::all_of(findings.begin(), findings.end(),
                     [](const ScanFinding& found) { return found.risk == ScanRisk::safe; });
}

ScanReport scan(const std::filesystem::path& path) {
  if (!os::exists(path)) {
    throw base::file_not_found(path.string()).problem("no such file");
  }
  ByteScanner scanner;
  scanner.enter(path.string(), "");
  if (os::file_info(path).is_directory) {
    scan_folder(scanner, path);
  } else {
    scan_file(scanner, path, {});
  }
  return scanner.take();
}

}  // namespace tenfold
