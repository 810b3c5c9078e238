#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include <tenfold/error.hpp>
#include <tenfold/parts.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "dataset/leaf_names.hpp"
#include "dataset/parts/folder.hpp"
#include "dataset/parts/leaf_source.hpp"
#include "dataset/parts/part.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/folder/keys.hpp"
#include "formats/format.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/file.hpp"

namespace tenfold {

using namespace detail;
namespace {

constexpr std::size_t kNumberDigits = 5;

std::string padded(std::int64_t number) {
  const std::string text = std::to_string(number);
  return std::string(text.size() < kNumberDigits ? kNumberDigits - text.size() : 0, '0') + text;
}

/// The index and count in a name that part_name() returns: 3 and 16 for "part-00003-of-00016".
/// nullopt for other names.
std::optional<std::pair<std::int64_t, std::int64_t>> numbers_of(std::string_view name) {
  constexpr std::string_view kPrefix = "part-";
  constexpr std::string_view kMiddle = "-of-";
  const std::size_t middle = name.find(kMiddle);
  if (!name.starts_with(kPrefix) || middle == std::string_view::npos) return std::nullopt;
  const auto number = [](std::string_view digits) -> std::optional<std::int64_t> {
    std::int64_t value = 0;
    const char* end = digits.data() + digits.size();
    if (digits.empty() || std::from_chars(digits.data(), end, value).ptr != end) {
      return std::nullopt;
    }
    return value;
  };
  const auto index = number(name.substr(kPrefix.size(), middle - kPrefix.size()));
  const auto count = number(name.substr(middle + kMiddle.size()));
  const bool are_numbers = index && count && *index >= 0 && *index < *count;
  if (!are_numbers || name != part_name(*index, *count)) return std::nullopt;
  return std::pair(*index, *count);
}

/// Checks that no part is missing: if a part "part-<index>-of-<count>" is added, all `count` parts
/// must be in `known` or in `added`, which must be sorted. Throws Error(file_not_found) for a
/// missing part.
void require_complete(const Path& path, const std::vector<std::string>& added,
                      const std::set<std::string>& known) {
  std::set<std::int64_t> counts;
  for (const std::string& name : added) {
    if (const auto numbers = numbers_of(name)) counts.insert(numbers->second);
  }
  for (const std::int64_t count : counts) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::string name = part_name(i, count);
      if (known.contains(name) || std::ranges::binary_search(added, name)) continue;
      throw base::file_not_found(path)
          .problem("part ", base::quote(name), " is missing")
          .expected("all ", count, " parts of the job")
          .found("some of them")
          .remedy("ingest() the part before commit_parts()");
    }
  }
}

constexpr std::string_view kStagingSuffix = ".tenfold-staging";

/// True for the name of a hidden folder in which a writer creates one part
/// (".part-00000-of-00002.tenfold-0") or several parts (".job.tenfold-staging").
bool is_unfinished(std::string_view name) {
  const std::size_t dash = name.rfind('-');
  return formats::folder::is_leftover(name) && dash + 1 < name.size() &&
         (name.ends_with(kStagingSuffix) ||
          std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dash) + 1, name.end(),
                      base::is_digit));
}

/// The name of the writer of several parts that has the staging folder `name`: "job" for
/// ".job.tenfold-staging". nullopt for the hidden folder of a single part.
std::optional<std::string> job_of_staging(std::string_view name) {
  if (!name.ends_with(kStagingSuffix) || name.size() < kStagingSuffix.size() + 2) return {};
  name.remove_suffix(kStagingSuffix.size());
  return std::string(name.substr(1));
}

/// Before a writer commits several parts, it moves their folders out of its staging folder. Returns
/// the name of the writer from the new name: "job" for "job-000012". nullopt for other names.
std::optional<std::string> job_of_moved(std::string_view name) {
  constexpr std::size_t kMinDigits = 6;
  const std::size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return {};
  const std::string_view number = name.substr(dash + 1);
  if (number.size() < kMinDigits || !std::ranges::all_of(number, base::is_digit)) return {};
  return std::string(name.substr(0, dash));
}

/// The first component of the path of each part: "a" for the part "a/b".
std::set<std::string> folders_of(const std::set<std::string>& parts) {
  std::set<std::string> names;
  for (const std::string& path : parts) names.insert(formats::components_of(path).front());
  return names;
}

/// Removes the hidden folders of crashed writers, and the folders that these writers moved out of
/// staging folders but did not commit. `known`: the parts in the manifest. Returns the names of the
/// writers of several parts that are still running.
std::set<std::string> remove_leftovers(os::Directory& folder, const std::set<std::string>& known) {
  const std::set<std::string> named = folders_of(known);
  const auto is_directory = [&](const std::string& name) {
    const auto info = folder.entry_info(name);
    return info && info->is_directory;
  };
  std::set<std::string> running;
  std::set<std::string> crashed;
  std::map<std::string, os::Lease> leftovers;
  const std::vector<std::string> names = folder.list();
  for (const std::string& name : names) {
    if (!is_unfinished(name) || !is_directory(name)) continue;
    auto lease = os::Lease::try_acquire(folder, name + ".lease");
    if (auto job = job_of_staging(name)) (lease ? crashed : running).insert(*std::move(job));
    if (lease) leftovers.emplace(name, *std::move(lease));
  }
  for (const std::string& name : names) {
    const auto job = job_of_moved(name);
    if (!job || !crashed.contains(*job) || named.contains(name)) continue;
    if (is_directory(name)) folder.remove_tree(name);
  }
  // Remove the staging folders last, because their names identify the moved folders.
  for (const auto& leftover : leftovers) folder.remove_tree(leftover.first);
  return running;
}

/// The subfolders that contain no part of the manifest, sorted by name. Omits names that begin with
/// '.' or '%', and folders that the writers in `running` are about to commit. Throws
/// Error(invalid_argument) for a link or special file.
std::vector<std::string> unnamed_folders(const os::Directory& folder,
                                         const std::set<std::string>& known,
                                         const std::set<std::string>& running) {
  const std::set<std::string> named = folders_of(known);
  std::vector<std::string> names;
  for (const std::string& name : folder.list()) {
    if (name.starts_with('.') || name.starts_with('%') || named.contains(name)) continue;
    if (const auto job = job_of_moved(name); job && running.contains(*job)) continue;
    const auto info = folder.entry_info(name);
    if (!info || info->is_regular) continue;
    if (!info->is_directory) {
      throw base::invalid_argument(folder.display_of(name))
          .expected("the folder of a part")
          .found("a link or a special file")
          .remedy("move the folder itself to this path");
    }
    names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::set<std::string> paths_of(const formats::PartsManifest& manifest) {
  std::set<std::string> paths;
  for (const formats::PartEntry& part : manifest.parts) paths.insert(part.path);
  return paths;
}

void require_no_tree(const os::Directory& folder, const Path& path) {
  if (!folder.entry_info(std::string(formats::folder::kMetaName))) return;
  throw base::invalid_argument(path)
      .expected("a folder of parts")
      .found("a data set in one folder")
      .remedy("write parts to another path");
}

void require_any_column(const Schema& schema, const Path& path) {
  if (schema.size() > 0) return;
  throw base::invalid_argument(path).part("schema").expected("at least one column").found("none");
}

void check_new_path(const Path& path) {
  if (!os::exists(path)) return;
  if (os::file_info(path).is_directory && os::Directory::open(path).list(1).empty()) return;
  throw Error::io(EEXIST, path.string()).expected("nothing there").found("a file or folder");
}

}  // namespace

std::string part_name(std::int64_t index, std::int64_t count) {
  if (count < 1 || index < 0 || index >= count) {
    throw base::invalid_argument()
        .part("part")
        .expected("a count of at least 1, and an index in [0, count)")
        .found("count ", count, " and index ", index);
  }
  return "part-" + padded(index) + "-of-" + padded(count);
}

Path part_path(const Path& path, std::int64_t index, std::int64_t count) {
  const std::string name = part_name(index, count);
  if (!os::exists(path)) return path / name;
  const os::Directory folder = os::Directory::open(path);
  require_no_tree(folder, path);
  if (formats::has_parts_manifest(folder)) {
    for (const formats::PartEntry& part : formats::read_parts_manifest(folder).parts) {
      if (part.path != name) continue;
      throw Error::io(EEXIST, path.string())
          .part("part ", base::quote(name))
          .expected("a new part")
          .found("one that the data set has")
          .remedy("write to another path");
    }
  }
  return path / name;
}

Dataset create_parts(const Path& path, const Schema& schema) {
  check_new_path(path);
  require_any_column(schema, path);
  std::vector<Column> columns = schema.columns();
  name_leaves(columns);
  os::Parent parent = os::open_parent(path, true);
  if (!os::exists(path)) parent.directory.create_directory(parent.name);
  os::Directory folder = os::Directory::open(path);
  const os::Lease lease = lease_parts(folder, path);
  check_new_path(path / formats::kPartsName);
  formats::PartsManifest manifest;
  manifest.schema = Schema(std::move(columns)).to_value();
  publish_parts(manifest, lease, path, true);
  parent.directory.sync();
  return Dataset(path, Mode::write_through);
}

Dataset commit_parts(const Path& path, const CommitPartsOptions& options) {
  {
    os::Directory folder = os::Directory::open(path);
    require_no_tree(folder, path);
    const os::Lease lease = lease_parts(folder, path);
    formats::PartsManifest manifest;
    const bool is_new = !formats::has_parts_manifest(folder);
    if (!is_new) manifest = formats::read_parts_manifest(folder);
    std::set<std::string> known = paths_of(manifest);
    std::vector<std::string> added = options.parts;
    if (added.empty()) {
      added = unnamed_folders(folder, known, remove_leftovers(folder, known));
      require_complete(path, added, known);
    }
    if (is_new && added.empty()) {
      throw base::invalid_argument(path).expected("parts").found("none").remedy(
          "ingest() them first");
    }
    for (const std::string& name : added) {
      if (!known.insert(name).second) {
        throw base::invalid_argument(path)
            .part("part ", base::quote(name))
            .expected("a new part")
            .found(std::ranges::count(added, name) > 1 ? "one that is listed twice"
                                                       : "one that the data set has");
      }
    }
    const Schema schema =
        is_new ? schema_of_part(folder, path, added.front())
               : Schema::from_value(manifest.schema,
                                    folder.display_of(std::string(formats::kPartsName)));
    if (is_new) {
      require_any_column(schema, path);
      std::vector<Column> columns = schema.columns();
      name_leaves(columns);
      manifest.schema = Schema(std::move(columns)).to_value();
    }
    // A crashed writer may have left the last part open. Close it, because only the last part of a
    // data set may grow.
    if (!added.empty() && !manifest.parts.empty() && manifest.parts.back().is_open) {
      formats::PartEntry& last = manifest.parts.back();
      last = entry_of_part(folder, path, last.path, schema);
    }
    formats::Progress progress(options.monitor, 0, "commit");
    for (const std::string& name : added) {
      progress.poll();
      manifest.parts.push_back(entry_of_part(folder, path, name, schema));
    }
    // Checks that readers can parse the new manifest.
    static_cast<void>(
        formats::parse_parts_manifest(formats::parts_manifest_text(manifest), path.string()));
    if (!added.empty()) publish_parts(manifest, lease, path, options.durable);
    remove_leftovers(folder, known);
  }
  return Dataset(path);
}

Dataset compact(const Path& path, const CompactOptions& options) {
  {
    os::Directory folder = os::Directory::open(path);
    if (!formats::has_parts_manifest(folder)) {
      throw base::invalid_argument(path)
          .expected("a data set of parts")
          .found("no ", formats::kPartsName);
    }
    const os::Lease lease = lease_parts(folder, path);
    remove_leftovers(folder, paths_of(formats::read_parts_manifest(folder)));
    const TensorDict tree = open_parts(folder.duplicate(), path);
    formats::folder::kFormat.write(tree, path,
                                   {.durable = options.durable,
                                    .num_threads = options.num_threads,
                                    .monitor = options.monitor});
  }
  return Dataset(path);
}

}  // namespace tenfold
