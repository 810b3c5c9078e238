#include <tenfold/scan.hpp>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "codecs/pickle.hpp"
#include "codecs/zip.hpp"
#include "io/scan_risk.hpp"
#include "os/directory.hpp"
#include "os/file.hpp"
#include "os/mapping.hpp"

namespace tenfold {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
/// Larger records that neither begin nor are named as pickles are data.
constexpr std::uint64_t kMaxGuessBytes = std::uint64_t{1} << 20U;

bool has_suffix(std::string_view name) {
  for (const std::string_view suffix : {".pkl", ".pickle", ".pck", ".pcl", ".p"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

/// PROTO 0 to 5, which every pickle of protocol 2 and later begins with.
bool begins_as_pickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x80' && static_cast<unsigned char>(bytes[1]) <= 5;
}

/// Where the pickle in a .npy file of objects begins; nothing for another.
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
  if (header.find('O') == std::string_view::npos) return std::nullopt;
  return begin + size;
}

class Scanner {
 public:
  /// The pickles that `bytes` begin with, one after the other. `surely` says that the first is one.
  void pickles(std::string_view bytes, const std::string& where, bool surely) {
    std::uint64_t at = 0;
    for (bool first = true; at < bytes.size(); first = false) {
      const std::string_view rest = bytes.substr(static_cast<std::size_t>(at));
      if (!first && !begins_as_pickle(rest)) return;
      std::string problem;
      const codecs::PickleGraph graph = codecs::read_pickle_prefix(rest, where, problem);
      // What follows a pickle need not be one: torch writes storages after its pickles.
      if (!problem.empty() && !(first && surely) && !has_global(graph)) return;
      ++report_.num_pickles;
      add(graph, where, at);
      if (!problem.empty()) {
        add("pickle that cannot be read to its end: " + problem, ScanRisk::suspicious, where, at);
        return;
      }
      at += graph.size_bytes;
    }
  }

  /// Bytes that may be a pickle, a .npy file of objects, or neither. Of tensors the first bytes say
  /// nothing: `is_tensor` lets a pickle count only if it names something.
  void any(std::string_view bytes, const std::string& where, bool named, bool is_tensor = false) {
    if (const auto objects = npy_objects(bytes)) {
      pickles(bytes.substr(*objects), where, true);
    } else if (named || begins_as_pickle(bytes)) {
      pickles(bytes, where, !is_tensor);
    } else if (bytes.size() <= kMaxGuessBytes) {
      guess(bytes, where);
    }
  }

  ScanReport take() { return std::move(report_); }

  /// What is added from here on is in the file of that name; "" for the only file.
  void enter(std::string file) { file_ = std::move(file); }

  void add(std::string global, ScanRisk risk, const std::string& where, std::uint64_t at) {
    std::string place = file_.empty() ? "" : base::quote(file_) + ": ";
    if (!where.empty()) place += where + " ";
    place += "at byte " + std::to_string(at);
    report_.findings.push_back({std::move(global), risk, std::move(place)});
  }

 private:
  static bool has_global(const codecs::PickleGraph& graph) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const codecs::PickleNode& node) {
      return node.kind == codecs::PickleKind::global;
    });
  }

  static bool names_danger(const codecs::PickleGraph& graph) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const codecs::PickleNode& node) {
      return node.kind == codecs::PickleKind::global &&
             risk_of_global(node.text, node.name) == ScanRisk::dangerous;
    });
  }

  /// Pickles of protocols 0 and 1 begin with no mark: text is one if it can be read as one, or if
  /// it names what is dangerous before it cannot.
  void guess(std::string_view bytes, const std::string& where) {
    std::string problem;
    const codecs::PickleGraph graph = codecs::read_pickle_prefix(bytes, where, problem);
    if ((problem.empty() && has_global(graph)) || names_danger(graph)) pickles(bytes, where, true);
  }

  void add(const codecs::PickleGraph& graph, const std::string& where, std::uint64_t at) {
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

  ScanReport report_;
  std::string file_;
};

void scan_zip(Scanner& scanner, const codecs::ZipInput& input) {
  const codecs::ZipDirectory directory = codecs::read_zip_directory(input, codecs::ZipLimits());
  for (const codecs::ZipEntry& entry : directory.entries) {
    const bool named = has_suffix(entry.name);
    if (entry.size_bytes == 0) continue;
    if (entry.method == codecs::ZipMethod::stored && !named && entry.size_bytes > kMaxGuessBytes) {
      std::array<std::byte, 16> head{};
      input.read(entry.data_offset, head);
      const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
      if (!begins_as_pickle(text) && !text.starts_with(kNpyMagic)) continue;
    }
    // Damage does not keep a program from unpickling: what is there is looked at.
    const std::vector<std::byte> bytes = codecs::read_zip_entry_unchecked(input, entry);
    scanner.any({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                "record " + base::quote(entry.name), named);
  }
}

void scan_file(Scanner& scanner, const os::Path& path) {
  const os::File file = os::File::open_read(path);
  if (file.size_bytes() == 0) return;
  const Buffer whole = os::map_file(file, 0, file.size_bytes(), os::MapKind::read_only);
  const std::string_view bytes(reinterpret_cast<const char*>(whole.data()), whole.size_bytes());
  constexpr std::size_t kTarMagicAt = 257;
  if (bytes.starts_with("PK\x03\x04")) {
    codecs::ZipInput input;
    input.where = path.string();
    input.size_bytes = file.size_bytes();
    input.read = [&](std::uint64_t offset, std::span<std::byte> into) {
      file.read_at(offset, into);
    };
    scan_zip(scanner, input);
    return;
  }
  // A pickle can have the mark of a tar archive in a text of its own: it is scanned all the same.
  if (bytes.size() > kTarMagicAt && bytes.substr(kTarMagicAt).starts_with("ustar")) {
    scanner.add("tar archive, which is not looked into", ScanRisk::suspicious, "", 0);
  }
  scanner.any(bytes, "", has_suffix(path.string()), path.extension() == ".memmap");
}

/// The regular files under a folder, by name. A link to a file counts, one to a folder does not:
/// it could lead back.
std::vector<os::Path> files_in(const os::Path& folder) {
  std::vector<os::Path> files;
  std::error_code failure;
  auto entry = std::filesystem::recursive_directory_iterator(folder, failure);
  for (; !failure && entry != std::filesystem::recursive_directory_iterator();
       entry.increment(failure)) {
    std::error_code broken_link;
    if (entry->is_regular_file(broken_link)) files.push_back(entry->path());
  }
  if (failure) throw Error::io(failure.value(), folder.string(), "cannot be listed");
  std::ranges::sort(files);
  return files;
}

/// One archive that cannot be read keeps the others from nobody.
void scan_folder(Scanner& scanner, const os::Path& folder) {
  for (const os::Path& file : files_in(folder)) {
    scanner.enter(file.lexically_relative(folder).string());
    try {
      scan_file(scanner, file);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw;
      scanner.add("archive that cannot be read: " + std::string(error.what()), ScanRisk::suspicious,
                  "", 0);
    }
  }
}

}  // namespace

std::string_view name(ScanRisk risk) noexcept {
  constexpr std::array<std::string_view, 3> kNames = {"safe", "suspicious", "dangerous"};
  return kNames[static_cast<std::size_t>(risk)];
}

bool ScanReport::safe() const noexcept {
  return std::all_of(findings.begin(), findings.end(),
                     [](const ScanFinding& found) { return found.risk == ScanRisk::safe; });
}

ScanReport scan(const std::filesystem::path& path) {
  if (!os::exists(path)) {
    throw Error(ErrorCode::file_not_found, path.string() + ": no such file");
  }
  Scanner scanner;
  os::file_info(path).is_directory ? scan_folder(scanner, path) : scan_file(scanner, path);
  return scanner.take();
}

}  // namespace tenfold
