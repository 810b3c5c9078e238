#include "io/registry.hpp"

#include <tenfold/error.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/parts_manifest.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold {

using namespace detail;
namespace {

/// A known format that this version does not support.
struct Unsupported {
  std::string_view name;
  std::string_view suffix;
};
constexpr std::array<Unsupported, 1> kUnsupported = {{{"pickle", ".pkl"}}};

/// Maximum number of entries to examine in a folder of unknown format, to describe the folder.
constexpr std::size_t kMaxNames = 100'000;
/// Maximum number of entries to compare with the name of a missing file or folder.
constexpr std::size_t kMaxNearNames = 1'000;

Error unknown_format(const formats::FileHead& head) {
  return base::unsupported(head.path())
      .problem(kUnknownFormat)
      .expected("one of ", formats::names());
}

bool has_suffix(const formats::Format& format, const std::string& file_name) {
  return std::any_of(format.suffixes.begin(), format.suffixes.end(), [&](std::string_view suffix) {
    return file_name.size() > suffix.size() && file_name.ends_with(suffix);
  });
}

const formats::Format* format_by_suffix(const Path& path) {
  const std::string file_name = path.filename().string();
  for (const formats::Format* format : formats::all()) {
    if (has_suffix(*format, file_name)) return format;
  }
  return nullptr;
}

/// Returns the known suffix that the suffix of `file_name` probably misspells, or nullopt if it
/// resembles none.
std::optional<std::string> intended_suffix(const std::string& file_name) {
  std::string suffix = Path(file_name).extension().string();
  std::ranges::transform(suffix, suffix.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  // Versions and dates are not suffixes: "run.1".
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  if (suffix.size() < 2 || !std::all_of(suffix.begin() + 1, suffix.end(), is_letter)) {
    return std::nullopt;
  }
  std::vector<std::string> known;
  for (const formats::Format* format : formats::all()) {
    known.insert(known.end(), format->suffixes.begin(), format->suffixes.end());
  }
  // If the suffix in lower case is known, the file name has capital letters in it: otherwise,
  // format_by_suffix() would have found the format.
  if (std::ranges::find(known, suffix) != known.end()) return suffix;
  const std::vector<std::string> near = base::near_matches(suffix, known, 1);
  return near.empty() ? std::nullopt : std::optional(near.front());
}

/// Suffixes of other programs' files, which no format of tenfold has.
constexpr auto kOfOthers = std::to_array<std::string_view>(
    {".csv", ".gguf", ".h5", ".hdf5", ".json", ".jsonl", ".ndjson", ".onnx", ".parquet", ".tsv"});
/// Suffixes of files that ingest() reads (.parquet: in Python only).
constexpr auto kOfRows =
    std::to_array<std::string_view>({".csv", ".jsonl", ".ndjson", ".parquet", ".tsv"});

bool has_suffix_of(const std::string& file_name, std::span<const std::string_view> suffixes) {
  return std::ranges::any_of(suffixes,
                             [&](std::string_view suffix) { return file_name.ends_with(suffix); });
}

/// Returns the remedy for the error about a missing `path`, or an empty string if none is known.
std::string remedy_for_missing(const Path& path) {
  const std::string text = path.string();
  if (text.find("://") != std::string::npos) {
    return "it is a URL, and files are read from disk: download it first";
  }
  if (text.starts_with('~')) return "only a shell replaces ~ by the home folder";
  if (text.find('\\') != std::string::npos) return "folders are separated by /";
  try {
    const Path parent = path.parent_path();
    std::vector<std::string> names =
        os::Directory::open(parent.empty() ? Path(".") : parent).list(kMaxNearNames);
    std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
    const auto near = base::near_matches(path.filename().string(), names, 1);
    if (near.empty()) return {};
    return "did you mean " + base::quote((parent / near.front()).string()) + "?";
  } catch (const Error&) {
    return {};  // the parent folder is missing, too, or cannot be listed
  }
}

/// The error of a file of unknown format.
Error unknown_file(const formats::FileHead& head) {
  const std::string_view text = head.head().substr(0, 8);
  if (text.empty()) return unknown_format(head).found("an empty file");
  if (text.starts_with("PK\x03\x04")) {
    return unknown_format(head).found("a zip archive (.npz perhaps)");
  }
  if (text[0] == '\x80') {
    return unknown_format(head)
        .found("a pickle (.pkl), which is never run")
        .remedy(
            "to list what it would call, use scan; if you trust it, load it with pickle and save "
            "the result in one of these formats");
  }
  const bool has_rows = has_suffix_of(head.path().filename().string(), kOfRows);
  return unknown_format(head)
      .found("a file that starts with ", base::quote(text))
      .remedy(has_rows ? "to make a data set of it, use ingest" : "");
}

/// The file in a model's folder that probably stores the whole model: one with a usual name, else
/// the alphabetically first index, else the alphabetically first file with the suffix of a format.
/// The order of `names` is not used, because it depends on the file system.
std::optional<std::string> best_inside(const std::vector<std::string>& names) {
  constexpr auto kModelNames =
      std::to_array<std::string_view>({"model.safetensors.index.json", "model.safetensors",
                                       "pytorch_model.bin.index.json", "pytorch_model.bin"});
  for (const std::string_view wanted : kModelNames) {
    if (std::ranges::find(names, wanted) != names.end()) return std::string(wanted);
  }
  const auto rank = [](const std::string& name) { return !name.ends_with(".index.json"); };
  std::optional<std::string> best;
  for (const std::string& name : names) {
    if (format_by_suffix(name) == nullptr) continue;
    if (!best || std::pair(rank(name), name) < std::pair(rank(*best), *best)) best = name;
  }
  return best;
}

/// The last step in a directory of CheckpointManager, if there is one.
std::optional<std::string> last_step_in(const os::Directory& folder,
                                        const std::vector<std::string>& names) {
  std::optional<std::string> last;
  for (const std::string& name : names) {
    if (!name.starts_with("step_") || (last && name < *last)) continue;
    const os::Directory step = os::Directory::try_open_at(folder, name);
    if (step.valid() && step.entry_info("checkpoint.json")) last = name;
  }
  return last;
}

/// The error of a folder of unknown format.
Error unknown_folder(const formats::FileHead& head) {
  const std::vector<std::string> names = head.folder().list(kMaxNames);
  const bool is_distributed =
      std::ranges::any_of(names, [](const std::string& name) { return name.ends_with(".distcp"); });
  if (is_distributed) {
    return unknown_format(head).found(
        "a folder with \".distcp\" files and no \".metadata\": the checkpoint of "
        "torch.distributed is incomplete, its save was interrupted or a file was not copied");
  }
  if (const auto step = last_step_in(head.folder(), names)) {
    return unknown_format(head)
        .found("a directory of checkpoints")
        .remedy("did you mean ", base::quote((head.path() / *step).string()),
                "? `tenfold checkpoints` lists the steps");
  }
  const std::optional<std::string> inside = best_inside(names);
  Error error = unknown_format(head).found("a folder without meta.json");
  if (!inside) return error;
  return std::move(error).remedy("did you mean ", base::quote((head.path() / *inside).string()),
                                 "?");
}

/// True if the folder, which has no meta.json, otherwise looks like a memory-mapped folder.
bool is_damaged_folder(const os::Directory& folder) {
  if (folder.entry_info("%checksums") || folder.entry_info("%notes.json")) return true;
  const std::vector<std::string> names = folder.list(kMaxNames);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with(".memmap"); });
}

/// True if the file may be a damaged file of `format`, which its suffix determines. A pickle is a
/// file of torch.save only if it starts like the files of torch before 1.6. A ".bin" or
/// ".ckpt" file must start like a file of torch.save, because many programs use these suffixes for
/// other files.
bool may_be_of(const formats::Format& format, const formats::FileHead& head) {
  if (&format != &formats::torch_file::kFormat) return true;
  const std::string_view text = head.head().substr(0, 3);
  if (text.starts_with('\x80')) return text == "\x80\x02\x8a";  // protocol 2, then a long integer
  const std::string file_name = head.path().filename().string();
  return text.starts_with("PK") || !(file_name.ends_with(".bin") || file_name.ends_with(".ckpt"));
}

/// The error for a file that is a git-lfs pointer or an HTML page instead of the expected file;
/// empty for other content.
std::optional<Error> mistaken_download(const formats::FileHead& head) {
  std::string text(head.head().substr(0, 64));
  if (text.starts_with("version https://git-lfs.github.com/spec/")) {
    return unknown_format(head)
        .found("a pointer of git-lfs instead of the file")
        .remedy("run \"git lfs pull\"");
  }
  text.erase(0, std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (text.starts_with("<!doctype html") || text.starts_with("<html")) {
    return unknown_format(head)
        .found("an HTML page instead of the file")
        .remedy("download the file again; sign in first if the server requires it");
  }
  return std::nullopt;
}

void require_known(std::string_view name) {
  for (const Unsupported& format : kUnsupported) {
    if (format.name != name) continue;
    throw base::unsupported()
        .part("format ", base::quote(name))
        .problem("this version cannot read or write it")
        .expected("one of ", formats::names())
        .found(base::quote(name));
  }
  const bool known =
      std::any_of(formats::all().begin(), formats::all().end(),
                  [&](const formats::Format* format) { return format->name == name; });
  if (known) return;
  throw base::invalid_argument()
      .part("format ", base::quote(name))
      .problem("no such format")
      .expected("one of ", formats::names())
      .found(base::quote(name));
}

}  // namespace

const formats::Format& format_by_name(std::string_view name) {
  require_known(name);
  // If several formats have the same name, the last one is the main form: for "safetensors" and
  // "pt", the single file, not the index of shards.
  const auto row =
      std::find_if(formats::all().rbegin(), formats::all().rend(),
                   [&](const formats::Format* format) { return format->name == name; });
  return **row;
}

const formats::Format& format_for_saving(const Path& path, std::string_view name) {
  const formats::Format* by_suffix = format_by_suffix(path);
  if (!name.empty()) {
    require_known(name);
    if (by_suffix != nullptr && by_suffix->name == name) return *by_suffix;
    return format_by_name(name);
  }
  if (by_suffix != nullptr) return *by_suffix;
  const std::string file_name = path.filename().string();
  for (const Unsupported& format : kUnsupported) {
    if (!file_name.ends_with(format.suffix)) continue;
    throw base::unsupported(path)
        .part("format ", base::quote(format.name))
        .problem("this version cannot write it")
        .expected("one of ", formats::names(true))
        .found("the suffix ", base::quote(format.suffix))
        .remedy("to write a memory-mapped folder of that name, request the format \"memmap\"");
  }
  if (const auto intended = intended_suffix(file_name)) {
    warn(path.string() + ": suffix " + base::quote(path.extension().string()) +
         ": not the suffix of a format, so a folder is written; did you mean " +
         base::quote(*intended) + "?");
  } else if (has_suffix_of(file_name, kOfOthers)) {
    warn(path.string() + ": suffix " + base::quote(path.extension().string()) +
         ": not the suffix of a format that is written, so a folder is written");
  }
  return formats::folder::kFormat;
}

FoundFormat format_of_content(const Path& path, std::string_view name) {
  if (!name.empty()) require_known(name);
  if (!os::exists(path) && !formats::recover_folder(path)) {
    Error error = base::file_not_found(path.string()).problem("no such file or folder");
    const std::string remedy = remedy_for_missing(path);
    throw remedy.empty() ? std::move(error) : std::move(error).remedy(remedy);
  }
  formats::FileHead head(path);
  const auto found = [&](const formats::Format& format) {
    return FoundFormat{std::move(head), &format};
  };
  for (const formats::Format* format : formats::all()) {
    if ((name.empty() || format->name == name) && format->probe(head)) return found(*format);
  }
  if (head.is_file()) {
    if (const auto mistake = mistaken_download(head)) throw *mistake;
  }
  // The content matches no format. If the name or the suffix determines one, opening the path in
  // this format gives the most helpful error message.
  if (!name.empty()) return found(format_for_saving(path, name));
  if (head.is_folder()) {
    if (is_damaged_folder(head.folder())) return found(formats::folder::kFormat);
    throw unknown_folder(head);
  }
  const formats::Format* format = format_by_suffix(path);
  if (format != nullptr && may_be_of(*format, head)) return found(*format);
  if (!head.is_file()) static_cast<void>(head.file());  // throws for a FIFO, socket or device
  throw unknown_file(head);
}

}  // namespace tenfold
