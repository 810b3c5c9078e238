#include "checkpoint/entries.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <variant>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/glob.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "checkpoint/document.hpp"
#include "core/tree/aliases.hpp"
#include "core/value/value_json.hpp"
#include "formats/safetensors/header.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/verify_filter.hpp"
#include "io/holdable.hpp"
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

/// What an entry is written as, and its suffix.
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

/// A name that a file can have, as others see it: no '/', no control characters, no leading dot.
std::string file_stem(const std::string& name, std::size_t longest_suffix) {
  std::string stem;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = byte >= 0x20 && byte != 0x7f && c != '/' && c != '%';
    const bool is_hidden = stem.empty() && c == '.';
    stem += is_plain && !is_hidden ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  if (!stem.empty() && stem.size() + longest_suffix <= kMaxEntryPathBytes) return stem;
  // The name stands in the document.
  return "entry-" + base::hex16(base::xxh3(std::as_bytes(std::span(name))));
}

/// A path that no other entry has.
std::string claim_path(const std::string& name, std::string_view suffix,
                       std::set<std::string>& taken) {
  constexpr std::size_t kRoom = 32;  // for the suffix, and what tells equal stems apart
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
  require_holdable(planned.tree, writer, path.string());
  named_by_path(writer, path, [&] { writer.check(planned.tree); });
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

/// Takes write permission from a file that several steps share: a write would change all of them.
void protect(const os::Directory& folder, const std::string& name) {
  constexpr std::uint32_t kReadBits = 0444;
  os::File file = os::File::open_read_at(folder, name);
  os::FileInfo info = file.info();
  info.mode &= kReadBits;
  file.copy_permissions(info);
}

/// Puts a hard link to `old_name` in the place of a file; false if the file system cannot.
bool put_link(os::Directory& folder, const std::string& name, const os::Directory& old_folder,
              const std::string& old_name) {
  const std::string linked = name + ".linked";
  if (!folder.link_from(old_folder, old_name, linked)) return false;
  folder.rename(linked, name);
  protect(folder, name);
  return true;
}

/// Size and checksum of each block of a file, and where a box lies.
using Blocks = std::vector<std::tuple<std::uint64_t, std::uint64_t, formats::ByteBox>>;

std::map<std::string, Blocks> blocks_by_path(const os::Directory& root) {
  const std::string name(formats::kChecksumsName);
  const std::string text = os::File::open_read_at(root, name).read_all(formats::kMaxChecksumsBytes);
  std::map<std::string, Blocks> files;
  for (const formats::ChecksumLine& line : formats::parse_checksums(text, root.display_of(name))) {
    files[line.path].emplace_back(line.size_bytes, line.checksum,
                                  line.box ? *line.box : formats::ByteBox());
  }
  return files;
}

/// Links the leaves that are equal in both trees. Names of one inode are tied tensors, so that
/// links must neither tie nor untie any.
void link_equal_leaves(os::Directory& folder, const os::Directory& old_folder) {
  const std::map<std::string, Blocks> old_files = blocks_by_path(old_folder);
  std::set<std::uint64_t> used;  // inodes of the old tree
  for (const auto& [path, blocks] : blocks_by_path(folder)) {
    const auto old = old_files.find(path);
    if (!path.ends_with(".memmap") || old == old_files.end() || old->second != blocks) continue;
    os::Directory into = folder.duplicate();
    os::Directory from = old_folder.duplicate();
    const Path parts(path);
    for (const Path& part : parts.parent_path()) {
      into = os::Directory::open_at(into, part.string());
      from = os::Directory::open_at(from, part.string());
    }
    const std::string name = parts.filename().string();
    const auto new_info = into.entry_info(name);
    const auto old_info = from.entry_info(name);
    const bool is_tied = !new_info || !old_info || new_info->num_links > 1;
    if (is_tied || !used.insert(old_info->inode).second) continue;
    if (!put_link(into, name, from, name)) return;
    into.sync();
  }
}

/// What is left of a tree if only these of its tensors, in the order of for_each_leaf, are there.
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

/// Compares the checksums of the tensors of an entry, of one of all ranks those that fall to this
/// one: each tensor to the rank that has fewest bytes so far.
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

std::string message_of(const Error& error, const std::string& path) {
  const std::string text = error.what();
  return text.starts_with(path + ": ") ? text.substr(path.size() + 2) : text;
}

}  // namespace

void check_rules(const FormatRules& rules) {
  for (const auto& [pattern, format] : rules) {
    if (entry_format(format) != nullptr) continue;
    throw Error(ErrorCode::invalid_argument,
                "format of " + base::quote(pattern) +
                    R"(: expected "safetensors", "memmap", "tdz", "pt" or "npz", found )" +
                    base::quote(format));
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
      throw Error(ErrorCode::corrupt,
                  folder.display_of(name) + ": expected a regular file, found another kind");
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

CheckpointEntry write_entry(const PlannedEntry& planned, const os::Directory& folder, bool durable,
                            int num_threads, Monitor* monitor) {
  const CheckpointEntry& entry = planned.entry;
  if (entry.format == kJson) {
    os::File file = os::File::create_at(folder, entry.path);
    file.write_at(0, std::as_bytes(std::span(planned.json)));
    if (durable) file.sync();
    file.close_written();
  } else {
    format_by_name(entry.format)
        .write(planned.tree, Path(folder.display()) / entry.path,
               {.durable = durable, .num_threads = num_threads, .monitor = monitor});
  }
  return measured(entry, folder);
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
      // The header holds the checksums of all blocks.
      const std::string header = formats::safetensors::read_header_bytes(file, made.num_bytes);
      stream.update(std::as_bytes(std::span(header)));
    } else {
      hash_file(file, stream);
    }
  }
  made.checksum = base::hex16(stream.digest());
  return made;
}

void share_unchanged(const os::Directory& step_folder, const CheckpointEntry& entry,
                     const os::Directory& old_step_folder, const CheckpointEntry& old_entry) {
  if (entry.format != old_entry.format || entry.format == kJson) return;
  EntryPlace place = place_of(step_folder, entry.path);
  const EntryPlace old = place_of(old_step_folder, old_entry.path);
  if (entry.format == "memmap") {
    os::Directory into = os::Directory::open_at(place.folder, place.name);
    link_equal_leaves(into, os::Directory::open_at(old.folder, old.name));
    return;
  }
  if (entry.checksum != old_entry.checksum || entry.num_bytes != old_entry.num_bytes) return;
  if (put_link(place.folder, place.name, old.folder, old.name)) place.folder.sync();
}

void verify_entry(const os::Directory& folder, const Path& path, const CheckpointEntry& entry,
                  bool full, const VerifyOptions& options, Rank rank, VerifyReport& report) {
  const std::string file = (path / entry.path).string();
  const auto add = [&](std::string what) {
    report.problems.push_back({file, "", std::move(what)});
  };
  try {
    const EntryPlace place = place_of(folder, entry.path);
    if (!place.folder.entry_info(place.name)) return add("is missing");
    const Fingerprint found = fingerprint(folder, entry);
    if (found.num_bytes != entry.num_bytes) {
      return add("size: expected " + std::to_string(entry.num_bytes) + " bytes, found " +
                 std::to_string(found.num_bytes));
    }
    ++report.num_checksums;
    if (found.checksum != entry.checksum) {
      return add("checksum: expected " + entry.checksum + ", found " + found.checksum +
                 ": it is not what the step was saved with");
    }
    if (entry.format == kJson) {
      report.num_bytes += found.num_bytes;
      return;
    }
    if (!full) {
      open_entry(path, entry);
      return;
    }
    const VerifyReport of_entry = verify_tensors(path / entry.path, entry, options, rank);
    report.problems.insert(report.problems.end(), of_entry.problems.begin(),
                           of_entry.problems.end());
    report.num_leaves += of_entry.num_leaves;
    report.num_bytes += of_entry.num_bytes;
    report.num_checksums += of_entry.num_checksums;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io && error.system_errno() == ECANCELED) throw;
    add(message_of(error, file));
  }
}

TensorDict::Item open_entry(const Path& step_path, const CheckpointEntry& entry) {
  const Path path = step_path / entry.path;
  if (entry.format == kJson) {
    const std::string text = os::File::open_read(path).read_all(kMaxJsonBytes);
    return NonTensor{from_json(text, path.string())};
  }
  if (entry_format(entry.format) == nullptr) {
    throw Error(ErrorCode::unsupported,
                path.string() + ": format: expected one that this version reads, found " +
                    base::quote(entry.format) + "; a newer tenfold reads it");
  }
  TensorDict tree = open(path, {.format = entry.format});
  return entry.is_bare ? tree.get(kBareKey) : TensorDict::Item(std::move(tree));
}

}  // namespace tenfold::checkpoint
