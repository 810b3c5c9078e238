#include "checkpoint/entries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <variant>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "base/glob.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/document.hpp"
#include "core/tree/aliases.hpp"
#include "core/value/value_json.hpp"
#include "formats/safetensors/header.hpp"
#include "formats/shared/earlier_version.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/verify_filter.hpp"
#include "io/check_supported.hpp"
#include "io/registry.hpp"
#include "io/tree.hpp"
#include "os/fs/file.hpp"

namespace tenfold::checkpoint {

using namespace detail;

namespace {

constexpr std::string_view kBareKey = "value";
constexpr std::string_view kJson = "json";
constexpr std::uint64_t kMaxJsonBytes = std::uint64_t{1} << 30;
constexpr std::uint64_t kReadBytes = std::uint64_t{4} << 20;

/// The format of an entry, and its suffix.
struct EntryFormat {
  std::string_view name;
  std::string_view suffix;
};
constexpr EntryFormat kFormats[] = {{"safetensors", ".safetensors"},
                                    {"memmap", ""},
                                    {"tdz", ".tdz"},
                                    {"pt", ".pt"},
                                    {"npz", ".npz"}};

const EntryFormat* entry_format(std::string_view name) {
  const auto* found = std::ranges::find(kFormats, name, &EntryFormat::name);
  return found == std::end(kFormats) ? nullptr : found;
}

const EntryFormat& format_of(const std::string& name, const FormatRules& rules) {
  for (const auto& [pattern, format] : rules) {
    if (pattern == name) return *entry_format(format);
  }
  for (const auto& [pattern, format] : rules) {
    if (base::glob_match(pattern, name)) return *entry_format(format);
  }
  return kFormats[0];
}

/// Returns `name` with '/', '%', ASCII control characters and a leading dot percent-encoded.
/// Returns "entry-<hash>" if `name` is empty, or if the encoded name plus `longest_suffix` bytes
/// would be too long for a path.
std::string file_stem(const std::string& name, std::size_t longest_suffix) {
  std::string stem;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = byte >= 0x20 && byte != 0x7f && c != '/' && c != '%';
    const bool is_hidden = stem.empty() && c == '.';
    stem += is_plain && !is_hidden ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  if (!stem.empty() && stem.size() + longest_suffix <= kMaxEntryPathBytes) return stem;
  // The document contains the real name.
  return "entry-" + base::hex16(base::xxh3(std::as_bytes(std::span(name))));
}

/// Returns a path that no other entry has.
std::string claim_path(const std::string& name, std::string_view suffix,
                       std::set<std::string>& taken) {
  constexpr std::size_t kRoom = 32;  // for the suffix and underscores that make the path unique
  std::string stem = file_stem(name, kRoom);
  for (;;) {
    std::string path = stem + std::string(suffix);
    if (is_entry_path(path) && taken.insert(path).second) return path;
    stem += '_';
  }
}

std::uint64_t tensor_bytes(const TensorDict& tree) {
  std::uint64_t total = 0;
  AliasFinder finder;
  std::size_t position = 0;
  for (const NamedLeaf& named : tensors_of(tree)) {
    if (finder.add(named.leaf) == position++) total += named.leaf.nbytes();
  }
  return total;
}

TensorDict wrapped(const TensorDict::Item& item) {
  NodeInfo info;
  info.kind = NodeKind::dict;
  TensorDict tree(info);
  tree.set(kBareKey, item);
  return tree;
}

PlannedEntry plan_entry(const std::string& name, const TensorDict::Item& item,
                        const FormatRules& rules, const std::string& where,
                        std::set<std::string>& taken) {
  if (!base::is_utf8(name)) {
    throw base::invalid_argument(where)
        .part("entry ", base::quote(name))
        .expected("a name in UTF-8")
        .found("other bytes");
  }
  PlannedEntry planned;
  planned.entry.name = name;
  if (const auto* value = std::get_if<NonTensor>(&item);
      value != nullptr && !value->is_stack && is_json(value->value)) {
    planned.entry.format = kJson;
    planned.entry.path = claim_path(name, ".json", taken);
    planned.json = to_json(value->value, codecs::JsonStyle::python) + "\n";
    planned.num_bytes = planned.json.size();
    return planned;
  }
  const EntryFormat& format = format_of(name, rules);
  planned.entry.format = format.name;
  planned.entry.path = claim_path(name, format.suffix, taken);
  planned.entry.is_bare = !std::holds_alternative<TensorDict>(item);
  planned.tree = planned.entry.is_bare ? wrapped(item) : std::get<TensorDict>(item);
  planned.num_bytes = tensor_bytes(planned.tree);
  planned.has_tensors = !tensors_of(planned.tree).empty();
  const formats::Format& writer = format_by_name(format.name);
  const Path path = Path(where) / planned.entry.path;
  refuse_opaque(planned.tree, path.string(), "");
  check_supported(planned.tree, writer, path.string());
  with_path(path, [&] { writer.check(planned.tree); });
  return planned;
}

void hash_file(const os::File& file, base::Xxh3Stream& stream) {
  std::vector<std::byte> buffer(kReadBytes);
  std::uint64_t offset = 0;
  for (;;) {
    const std::size_t size = file.read_some_at(offset, buffer);
    stream.update(std::span(buffer).first(size));
    offset += size;
    if (size < buffer.size()) return;
  }
}

/// Replaces the file of `entry` by a hard link to the equal file of the earlier step, if
/// link_unchanged() can create one.
void replace_by_link(os::Directory& folder, const CheckpointEntry& entry,
                     const formats::EarlierVersion& earlier, bool durable) {
  const std::string linked = ".linked";  // no entry's path starts with a dot
  os::File file = formats::link_unchanged(folder, linked, earlier, earlier.folder, earlier.name,
                                          entry.num_bytes);
  if (!file.valid()) return;
  folder.rename(linked, entry.path);
  if (!durable) return;
  if (!earlier.is_synced) file.sync();
  folder.sync();
}

/// The entry of the previous step with the name, rank and format of the entry to write. Its files
/// still have the size and checksum that the document of the previous step records.
struct EarlierEntry {
  formats::EarlierVersion version;
  std::string checksum;
};

std::optional<EarlierEntry> earlier_entry(const EarlierStep& step, const CheckpointEntry& entry) {
  const CheckpointEntry* old = entry_of(step.info, entry.name, entry.rank);
  if (old == nullptr || old->format != entry.format || entry.format == kJson) return std::nullopt;
  try {
    EarlierEntry earlier;
    earlier.checksum = old->checksum;
    const Fingerprint found = fingerprint(step.folder, *old);
    if (found.checksum != old->checksum || found.num_bytes != old->num_bytes) return std::nullopt;
    EntryPlace place = place_of(step.folder, old->path);
    // Use the modification time of a file that the earlier save wrote after the tensors: for memmap
    // the file of checksums, for other formats the step's document.
    earlier.version.saved_ns =
        entry.format == "memmap"
            ? os::File::open_read_at(os::Directory::open_at(place.folder, place.name),
                                     std::string(formats::kChecksumsName))
                  .info()
                  .modified_ns
            : step.saved_ns;
    earlier.version.folder = std::move(place.folder);
    earlier.version.name = std::move(place.name);
    earlier.version.is_synced = step.is_synced;
    return earlier;
  } catch (const Error&) {
    return std::nullopt;  // A save does not fail because an older step is damaged.
  }
}

/// Returns the nodes of `tree` with only the chosen tensors and without values. `chosen` has a flag
/// for each tensor, in the order of tensors_of(). `next`: the index of the first tensor of `tree`.
TensorDict only(const TensorDict& tree, const std::vector<bool>& chosen, std::size_t& next) {
  TensorDict part = empty_like(tree);
  tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
    if (std::holds_alternative<Leaf>(item)) {
      if (chosen[next++]) part.set(key, item);
    } else if (const auto* node = std::get_if<TensorDict>(&item)) {
      part.set(key, only(*node, chosen, next));
    }
  });
  return part;
}

/// Verifies the file or folder of an entry. If several ranks verify an entry that belongs to all
/// ranks, each rank verifies some of its tensors. Each tensor is assigned to the rank that has the
/// fewest bytes so far.
VerifyReport verify_tensors(const Path& path, const CheckpointEntry& entry,
                            const VerifyOptions& options, Rank rank) {
  VerifyOptions inner = options;
  inner.format = entry.format;
  if (entry.rank || rank.world_size == 1) return verify(path, inner);
  const TensorDict tree = open(path, {.format = entry.format});
  std::vector<std::uint64_t> loads(static_cast<std::size_t>(rank.world_size), 0);
  std::vector<bool> chosen;
  for (const NamedLeaf& named : tensors_of(tree)) {
    const auto least = std::ranges::min_element(loads);
    *least += named.leaf.nbytes();
    chosen.push_back(least - loads.begin() == rank.rank);
  }
  std::size_t next = 0;
  const formats::VerifyFilter filter(tree, only(tree, chosen, next));
  return format_by_name(entry.format)
      .verify(path,
              {.num_threads = options.num_threads, .monitor = options.monitor, .filter = &filter});
}

/// Appends to `text` a line with the stat of `name` in `folder`, or "missing". If `name` is a
/// folder, also appends a line for each file and folder below it.
void add_stats(const os::Directory& folder, const std::string& name, std::string& text) {
  const auto info = folder.entry_info(name);
  if (!info) {
    text += "missing\n";
    return;
  }
  text +=
      fmt::format("{} {} {} {}\n", info->device, info->inode, info->modified_ns, info->size_bytes);
  if (!info->is_directory) return;
  const os::Directory inner = os::Directory::open_at(folder, name);
  std::vector<std::string> names = inner.list();
  std::ranges::sort(names);
  for (const std::string& each : names) add_stats(inner, each, text);
}

/// Returns true if the writer of the format itself compares each file with the earlier version, and
/// creates a hard link instead of writing an equal file.
bool links_itself(const std::string& format) {
  return format == "safetensors" || format == "memmap";
}

/// Checks everything but the tensors.
VerifyReport verify_metadata(const Path& path, const std::string& format,
                             const VerifyOptions& options) {
  const formats::VerifyFilter no_tensors(open(path, {.format = format}), TensorDict());
  return format_by_name(format).verify(
      path,
      {.num_threads = options.num_threads, .monitor = options.monitor, .filter = &no_tensors});
}

}  // namespace

void check_rules(const FormatRules& rules) {
  for (const auto& [pattern, format] : rules) {
    if (entry_format(format) != nullptr) continue;
    throw base::invalid_argument()
        .part("format of ", base::quote(pattern))
        .expected("\"safetensors\", \"memmap\", \"tdz\", \"pt\" or \"npz\"")
        .found(base::quote(format));
  }
}

std::vector<PlannedEntry> plan_entries(const TensorDict& state, const FormatRules& rules,
                                       const std::string& where) {
  std::vector<PlannedEntry> plan;
  std::set<std::string> taken = {std::string(kRanksName)};
  state.for_each([&](const std::string& name, const TensorDict::Item& item) {
    plan.push_back(plan_entry(name, item, rules, where, taken));
  });
  return plan;
}

std::uint64_t bytes_of(const std::vector<PlannedEntry>& plan) noexcept {
  std::uint64_t total = 0;
  for (const PlannedEntry& planned : plan) total += planned.num_bytes;
  return total;
}

std::uint64_t folder_bytes(const os::Directory& folder) {
  std::uint64_t total = 0;
  for (const std::string& name : folder.list()) {
    const auto info = folder.entry_info(name);
    if (!info) continue;
    if (info->is_directory) {
      total += folder_bytes(os::Directory::open_at(folder, name));
    } else if (info->is_regular) {
      total += info->size_bytes;
    } else {
      throw base::corrupt(folder.display_of(name)).expected("a regular file").found("another kind");
    }
  }
  return total;
}

EntryPlace place_of(const os::Directory& step_folder, const std::string& path) {
  EntryPlace place{step_folder.duplicate(), path};
  for (std::size_t slash = 0; (slash = place.name.find('/')) != std::string::npos;) {
    place.folder = os::Directory::open_at(place.folder, place.name.substr(0, slash));
    place.name.erase(0, slash + 1);
  }
  return place;
}

const CheckpointEntry* entry_of(const CheckpointInfo& info, const std::string& name,
                                std::optional<std::int64_t> rank) {
  const auto found = std::ranges::find_if(info.entries, [&](const CheckpointEntry& entry) {
    return entry.name == name && entry.rank == rank;
  });
  return found == info.entries.end() ? nullptr : &*found;
}

CheckpointEntry write_entry(const PlannedEntry& planned, os::Directory& folder,
                            const EarlierStep* earlier_step, bool durable, int num_threads,
                            Monitor* monitor) {
  const CheckpointEntry& entry = planned.entry;
  std::optional<EarlierEntry> earlier;
  if (earlier_step != nullptr) earlier = earlier_entry(*earlier_step, entry);
  if (entry.format == kJson) {
    os::File file = os::File::create_at(folder, entry.path);
    file.write_at(0, std::as_bytes(std::span(planned.json)));
    if (durable) file.sync();
    file.close_written();
  } else {
    format_by_name(entry.format)
        .write(planned.tree, Path(folder.display()) / entry.path,
               {.durable = durable,
                .num_threads = num_threads,
                .monitor = monitor,
                .earlier = earlier ? &earlier->version : nullptr});
  }
  CheckpointEntry made = measured(entry, folder);
  if (earlier && !links_itself(made.format) && made.checksum == earlier->checksum) {
    replace_by_link(folder, made, earlier->version, durable);
  }
  return made;
}

CheckpointEntry measured(CheckpointEntry entry, const os::Directory& folder) {
  const Fingerprint made = fingerprint(folder, entry);
  entry.num_bytes = made.num_bytes;
  entry.checksum = made.checksum;
  return entry;
}

Fingerprint fingerprint(const os::Directory& step_folder, const CheckpointEntry& entry) {
  Fingerprint made;
  base::Xxh3Stream stream;
  const auto [folder, name] = place_of(step_folder, entry.path);
  const auto found = folder.entry_info(name);
  if (found && found->is_directory) {
    const os::Directory inner = os::Directory::open_at(folder, name);
    made.num_bytes = folder_bytes(inner);
    hash_file(os::File::open_read_at(inner, std::string(formats::kChecksumsName)), stream);
  } else {
    const os::File file = os::File::open_read_at(folder, name);
    made.num_bytes = file.size_bytes();
    if (entry.format == "safetensors") {
      // The header contains the checksums of all blocks.
      const std::string header = formats::safetensors::read_header_bytes(file, made.num_bytes);
      stream.update(std::as_bytes(std::span(header)));
    } else {
      hash_file(file, stream);
    }
  }
  made.checksum = base::hex16(stream.digest());
  return made;
}

std::uint64_t hash_of_stats(const os::Directory& step_folder, const CheckpointInfo& info) {
  std::string text;
  for (const CheckpointEntry& entry : info.entries) {
    try {
      const EntryPlace place = place_of(step_folder, entry.path);
      add_stats(place.folder, place.name, text);
    } catch (const Error& error) {
      if (!formats::is_problem_of_files(error)) throw;
      text += "unreadable\n";
    }
  }
  return base::xxh3(std::as_bytes(std::span(text)));
}

void verify_entry(const os::Directory& folder, const Path& path, const CheckpointEntry& entry,
                  bool full, const VerifyOptions& options, Rank rank, VerifyReport& report) {
  const std::string file = (path / entry.path).string();
  const auto add = [&](const Error& error) {
    report.problems.push_back(formats::problem_of(error, file));
  };
  try {
    const EntryPlace place = place_of(folder, entry.path);
    if (!place.folder.entry_info(place.name)) return add(base::corrupt().problem("is missing"));
    const Fingerprint found = fingerprint(folder, entry);
    if (found.num_bytes != entry.num_bytes) {
      return add(
          base::corrupt().part("size").expected(entry.num_bytes, " bytes").found(found.num_bytes));
    }
    ++report.num_checksums;
    if (found.checksum != entry.checksum) {
      return add(base::corrupt()
                     .part("checksum")
                     .expected(entry.checksum)
                     .found(found.checksum, ": the entry was changed after the save"));
    }
    if (entry.format == kJson) {
      report.num_bytes += found.num_bytes;
      return;
    }
    VerifyReport of_entry;
    if (full) {
      of_entry = verify_tensors(path / entry.path, entry, options, rank);
    } else {
      open_entry(path, entry);
      if (entry.format != "memmap") return;  // the fingerprint covers the metadata
      of_entry = verify_metadata(path / entry.path, entry.format, options);
    }
    formats::add_report(report, of_entry);
  } catch (const Error& error) {
    if (!formats::is_problem_of_files(error)) throw;
    add(error);
  }
}

TensorDict::Item open_entry(const Path& step_path, const CheckpointEntry& entry) {
  const Path path = step_path / entry.path;
  if (entry.format == kJson) {
    const std::string text = os::File::open_read(path).read_all(kMaxJsonBytes);
    return NonTensor{from_json(text, path.string())};
  }
  if (entry_format(entry.format) == nullptr) {
    throw base::unsupported(path.string())
        .part("format")
        .expected("a format that this version reads")
        .found(base::quote(entry.format))
        .remedy("use a newer version of tenfold");
  }
  TensorDict tree = open(path, {.format = entry.format});
  return entry.is_bare ? tree.get(kBareKey) : TensorDict::Item(std::move(tree));
}

}  // namespace tenfold::checkpoint
