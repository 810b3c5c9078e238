#include "ingest/text/source_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/glob.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold {
namespace {

constexpr std::array<std::pair<std::string_view, SourceKind>, 7> kSuffixes = {{
    {".jsonl", SourceKind::lines},
    {".ndjson", SourceKind::lines},
    {".json", SourceKind::json},
    {".csv", SourceKind::csv},
    {".tsv", SourceKind::tsv},
    {".tab", SourceKind::tsv},
    {".jsonlines", SourceKind::lines},
}};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

bool is_packed(const std::string& name) { return !packed_suffix(name).empty(); }

/// True for a folder, or a link to one. False for a dangling link.
bool is_folder(const Path& path) {
  try {
    return os::file_info(path).is_directory;
  } catch (const Error& error) {
    const int code = error.system_errno();
    if (error.code() == ErrorCode::file_not_found || code == ENOTDIR || code == ELOOP) return false;
    throw;
  }
}

/// Sorted entries of the folder that match one component of a pattern.
std::vector<std::string> matches_in(const Path& folder, const std::string& pattern) {
  std::vector<std::string> names;
  if (!is_folder(folder)) return names;
  for (std::string& name : os::Directory::open(folder).list()) {
    // As in a shell, hidden files must be matched explicitly.
    if (name.starts_with('.') && !pattern.starts_with('.')) continue;
    if (base::glob_match(pattern, name)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

void expand(const Path& done, Path::iterator at, Path::iterator end, std::vector<Path>& found);

/// Expands "**" to the folder `done` before it, and to the folders below `done` at any depth; as
/// the last component, to the files in all these folders. Skips hidden entries. Does not follow
/// links to folders, because they may form a cycle.
void expand_below(const Path& done, Path::iterator at, Path::iterator end,
                  std::vector<Path>& found) {
  const auto next = std::next(at);
  if (next != end) expand(done, next, end, found);
  for (const std::string& name : matches_in(done.empty() ? Path(".") : done, "*")) {
    const Path path = done / name;
    if (!is_folder(path)) {
      if (next == end) found.push_back(path);
    } else if (!std::filesystem::is_symlink(path)) {
      expand_below(path, at, end, found);
    }
  }
}

void expand(const Path& done, Path::iterator at, Path::iterator end, std::vector<Path>& found) {
  if (at == end) {
    found.push_back(done);
    return;
  }
  const std::string part = at->string();
  const auto next = std::next(at);
  if (part == "**") {
    expand_below(done, at, end, found);
    return;
  }
  if (!base::is_glob(part)) {
    const Path path = done / part;
    if (os::exists(path)) expand(path, next, end, found);
    return;
  }
  for (const std::string& name : matches_in(done.empty() ? Path(".") : done, part)) {
    expand(done / name, next, end, found);
  }
}

/// The paths that one source expands to.
std::vector<Path> paths_of(const Path& source) {
  if (os::exists(source)) return {source};
  const bool is_glob = base::is_glob(source.string());
  std::vector<Path> found;
  if (is_glob) expand(Path(), source.begin(), source.end(), found);
  // The matches are not sorted across folders, and a pattern with two "**" may match a file several
  // times.
  std::ranges::sort(found);
  const auto twice = std::ranges::unique(found);
  found.erase(twice.begin(), twice.end());
  if (!found.empty()) return found;
  if (is_glob) throw base::file_not_found(source).expected("files that match").found("none");
  throw base::file_not_found(source)
      .problem("no such file")
      .expected("a file to ingest")
      .found("nothing");
}

[[noreturn]] void refuse(const std::string& display, const std::string& found) {
  throw base::unsupported(display)
      .expected(".jsonl, .ndjson, .json, .csv or .tsv, also as .gz, .zst, .bz2, .xz or in .zip")
      .found(found)
      .remedy("for other file names, set the option format (jsonl, ndjson, json, csv, tsv)");
}

SourceKind kind_of(const std::string& file_name, SourceFormat format) {
  switch (format) {
    case SourceFormat::json_lines:
      return SourceKind::lines;
    case SourceFormat::json:
      return SourceKind::json;
    case SourceFormat::csv:
      return SourceKind::csv;
    case SourceFormat::tsv:
      return SourceKind::tsv;
    case SourceFormat::by_name:
      break;
  }
  return kind_of_name(file_name);
}

/// Adds the text files of an archive, sorted by name. Ignores other entries, but throws
/// Error(unsupported) if there is no text file.
void add_archive(const Path& path, SourceFormat format, std::vector<SourceFile>& files) {
  const std::shared_ptr<const ZipFile> zip = open_zip_file(path);
  const std::string display = path.string();
  std::vector<std::pair<std::string, std::size_t>> entries;
  for (std::size_t i = 0; i < zip->directory.entries.size(); ++i) {
    const std::string& name = zip->directory.entries[i].name;
    const std::string file_name = name.substr(name.rfind('/') + 1);
    const bool is_text = kind_of(file_name, format) != SourceKind::unknown && !is_packed(file_name);
    // Ignore hidden files, because macOS adds one for each file of an archive.
    const bool is_file = !file_name.empty() && !file_name.starts_with('.');
    if (is_text && is_file) entries.emplace_back(name, i);
  }
  if (entries.empty()) refuse(display, "no such file in the archive");
  std::ranges::sort(entries);
  for (const auto& [name, number] : entries) {
    files.push_back({display + "/" + name, kind_of(name, format),
                     [zip, entry = number] { return open_zip_entry(zip, entry); }});
  }
}

void add_file(const Path& path, SourceFormat format, std::vector<SourceFile>& files) {
  const std::string display = path.string();
  if (os::file_info(path).is_directory) {
    refuse(display, "a folder; name its files, as in \"" + display + "/*.jsonl\"");
  }
  const std::string name = lower(path.filename().string());
  for (const char* suffix :
       {".parquet", ".pq", ".arrow", ".arrows", ".feather", ".ipc", ".npy", ".npz"}) {
    if (format == SourceFormat::by_name && name.ends_with(suffix)) {
      throw base::unsupported(display).expected("text").found(suffix).remedy(
          "tenfold.ingest in Python reads such files (Parquet and Arrow: with tenfold[arrow]); "
          "ingest text files in a separate call, and join the data sets with tenfold.concat");
    }
  }
  if (name.ends_with(".zip")) return add_archive(path, format, files);
  const SourceKind kind = kind_of(name, format);
  if (kind == SourceKind::unknown) refuse(display, "another name");
  files.push_back({display, kind, [path] { return open_byte_stream(path); }});
}

}  // namespace

SourceKind kind_of_name(const std::string& file_name) {
  std::string name = lower(file_name);
  name.resize(name.size() - packed_suffix(name).size());
  for (const auto& [suffix, kind] : kSuffixes) {
    if (name.ends_with(suffix)) return kind;
  }
  return SourceKind::unknown;
}

std::vector<Path> find_files(const std::vector<Path>& sources) {
  std::vector<Path> files;
  for (const Path& source : sources) {
    for (Path& path : paths_of(source)) files.push_back(std::move(path));
  }
  return files;
}

std::vector<SourceFile> find_sources(const std::vector<Path>& sources, SourceFormat format,
                                     char separator) {
  if (sources.empty()) {
    throw base::invalid_argument()
        .part("sources")
        .expected("at least one file")
        .found("an empty list");
  }
  std::vector<SourceFile> files;
  for (const Path& path : find_files(sources)) add_file(path, format, files);
  if (separator != '\0') require_csv(files, "separator");
  for (SourceFile& file : files) file.separator = separator;
  return files;
}

void require_csv(const std::vector<SourceFile>& files, std::string_view option) {
  const auto is_csv = [](const SourceFile& file) {
    return file.kind == SourceKind::csv || file.kind == SourceKind::tsv;
  };
  if (std::ranges::any_of(files, is_csv)) return;
  throw base::invalid_argument(files.front().display)
      .part(option)
      .expected("CSV or TSV files")
      .found("other files");
}

std::uint64_t total_bytes_of(const std::vector<Path>& sources) {
  std::uint64_t total = 0;
  for (const Path& path : find_files(sources)) total += os::file_info(path).size_bytes;
  return total;
}

}  // namespace tenfold
