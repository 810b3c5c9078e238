#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "formats/format.hpp"
#include "formats/safetensors/file.hpp"
#include "formats/safetensors/leaf_source.hpp"
#include "formats/safetensors/tree.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/hub_index.hpp"
#include "formats/shared/json_checksums.hpp"
#include "formats/shared/problem.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/process.hpp"

namespace tenfold::detail::formats::safetensors {
namespace {

/// Manages the shards of one index file while they are replaced.
///
/// The index is the commit point: a shard is only valid once an index names it. So new shards get
/// unused names, and the old ones are kept until the new index is in place. The names are
/// `<stem>-00001-of-00002.safetensors` if the writer holds slot 0 of the index (see Sibling), which
/// excludes other writers from these names. Otherwise, or if they are taken, the names contain
/// hexadecimal digits that identify this save (<id>).
///
/// A crashed save may leave shards: new ones whose index was never written, or old ones that were
/// not removed. They are listed in a file `.<index>.tenfold-shards-<slot>-<id>`, one file name
/// per line, written before the first shard. The holder of slot 0 removes files that a list of a
/// dead writer names and the index does not name. Nothing else is ever removed.
class ShardTransaction {
 public:
  /// `folder` contains the index `index_name`, which `index` replaces. `present_shards` returns the
  /// shards that the index names at the time of the call, or none if there is no index. It throws
  /// if the index cannot be read. If `index` holds slot 0, the constructor removes the leftovers of
  /// crashed saves.
  ShardTransaction(os::Directory& folder, std::string index_name, const FileReplacement& index,
                   std::function<std::vector<std::string>()> present_shards);
  ShardTransaction(const ShardTransaction&) = delete;
  ShardTransaction& operator=(const ShardTransaction&) = delete;
  /// Removes the new shards, unless an index names them.
  ~ShardTransaction();

  /// Returns unused names for that many shards, and writes the list that names them. Call once.
  std::vector<std::string> name_shards(std::size_t count, bool durable);
  /// Creates a shard with the permissions of the old index.
  os::File create(const std::string& name, const std::optional<os::FileInfo>& old_index);

  /// Call before the index is replaced. If the replacement fails, the destructor determines which
  /// index is in place.
  void about_to_commit() noexcept { committing_ = true; }

  /// Sets the shards of the index that was replaced. They differ from those at the start if another
  /// save replaced the index in between.
  void set_old_shards(std::vector<std::string> names) { old_shards_ = std::move(names); }

  /// Call after the new index is in place: removes the old shards, and warns if that fails.
  void committed(bool durable);

 private:
  void remove_abandoned();
  void clean_up(const std::string& list_name);
  bool may_be_named() const;
  bool are_free(const std::vector<std::string>& names) const;
  void remove_all(const std::vector<std::string>& names);

  os::Directory& folder_;
  std::string index_name_;
  const FileReplacement& index_;
  std::function<std::vector<std::string>()> present_shards_;
  std::vector<std::string> old_shards_;
  std::vector<std::string> new_shards_;  ///< created so far
  std::string list_name_;
  bool has_list_ = false;
  bool committing_ = false;
};

constexpr std::string_view kIndexSuffix = ".index.json";
constexpr std::string_view kShardSuffix = ".safetensors";
constexpr std::uint64_t kMaxListBytes = 16 << 20;

/// Prefix of the lists of writers in one slot.
std::string list_prefix(const std::string& index_name, int slot) {
  return hidden_name(index_name, "shards-" + std::to_string(slot) + "-");
}

/// Eight hexadecimal digits that identify this save.
std::string save_id() {
  static std::atomic<std::uint64_t> count{0};
  const std::uint64_t words[3] = {
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()),
      count.fetch_add(1), os::process_id()};
  return base::hex16(base::xxh3(std::as_bytes(std::span(words)))).substr(0, 8);
}

std::string five_digits(std::size_t number) {
  std::string digits = std::to_string(number);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return digits;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;  // an incomplete line of a crashed save
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return lines;
}

bool is_shard_name(const std::string& name) {
  return name.size() > kShardSuffix.size() && name.ends_with(kShardSuffix) &&
         name.find('/') == std::string::npos;
}

ShardTransaction::ShardTransaction(os::Directory& folder, std::string index_name,
                                   const FileReplacement& index,
                                   std::function<std::vector<std::string>()> present_shards)
    : folder_(folder),
      index_name_(std::move(index_name)),
      index_(index),
      present_shards_(std::move(present_shards)) {
  if (index_.slot() == 0) remove_abandoned();
  try {
    old_shards_ = present_shards_();
  } catch (const Error&) {
    // An index that cannot be read does not name any shards to remove.
  }
}

ShardTransaction::~ShardTransaction() {
  try {
    // In a forked child, the shards belong to its parent.
    if (!index_.is_ours() || (committing_ && may_be_named())) return;
    remove_all(new_shards_);
    if (has_list_) folder_.remove_file(list_name_);
  } catch (...) {
    // The next save removes the files in the list.
  }
}

/// True if the index names one of the new shards. Throws if the index cannot be read.
bool ShardTransaction::may_be_named() const {
  const std::vector<std::string> present = present_shards_();
  return std::ranges::any_of(new_shards_, [&](const std::string& name) {
    return std::ranges::find(present, name) != present.end();
  });
}

/// Removes what crashed saves left. Files that cannot be removed do not fail this save; the next
/// one tries again.
void ShardTransaction::remove_abandoned() {
  for (const std::string& name : folder_.list()) {
    if (!name.starts_with(hidden_name(index_name_, "shards-"))) continue;
    try {
      for (int slot = 0; slot < kMaxSiblings; ++slot) {
        if (!name.starts_with(list_prefix(index_name_, slot))) continue;
        // Held during the removal: the writer is dead, and no other can start in its slot.
        std::optional<os::Lease> lease;
        const bool is_own = slot == index_.slot();
        if (!is_own) lease = try_lease_slot(folder_, index_name_, slot);
        if (is_own || lease) clean_up(name);
      }
    } catch (const Error&) {
      continue;
    }
  }
}

/// Removes a list and the shards in it that the index does not name. Requires the slot of the
/// list's writer, so that no index can start to name these shards.
void ShardTransaction::clean_up(const std::string& list_name) {
  const std::vector<std::string> present = present_shards_();
  const os::File list = os::File::try_open_read_at(folder_, list_name);
  if (!list.valid()) return;
  std::vector<std::string> left = lines_of(list.read_all(kMaxListBytes));
  std::erase_if(left, [&](const std::string& shard) {
    return !is_shard_name(shard) || std::ranges::find(present, shard) != present.end();
  });
  remove_all(left);
  folder_.remove_file(list_name);
}

bool ShardTransaction::are_free(const std::vector<std::string>& names) const {
  return std::ranges::none_of(
      names, [&](const std::string& name) { return folder_.entry_info(name).has_value(); });
}

std::vector<std::string> ShardTransaction::name_shards(std::size_t count, bool durable) {
  const std::string stem =
      index_name_.substr(0, index_name_.size() - kIndexSuffix.size() - kShardSuffix.size());
  const std::string id = save_id();
  const auto names_from = [&](const std::string& base) {
    std::vector<std::string> names;
    for (std::size_t i = 1; i <= count; ++i) {
      names.push_back(base + "-" + five_digits(i) + "-of-" + five_digits(count) +
                      std::string(kShardSuffix));
    }
    return names;
  };
  std::vector<std::string> names = names_from(stem);
  if (index_.slot() != 0 || !are_free(names)) names = names_from(stem + "-" + id);
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  for (const std::string& name : old_shards_) text += name + "\n";
  list_name_ = list_prefix(index_name_, index_.slot()) + id;
  constexpr std::uint32_t kOwnerOnly = 0600;
  os::File list = os::File::create_at(folder_, list_name_, kOwnerOnly);
  has_list_ = true;
  list.write_at(0, std::as_bytes(std::span(text)));
  if (durable) list.sync();
  list.close_written();
  if (durable) folder_.sync();
  return names;
}

os::File ShardTransaction::create(const std::string& name,
                                  const std::optional<os::FileInfo>& old_index) {
  os::File file = create_like(folder_, name, old_index);
  new_shards_.push_back(name);
  return file;
}

void ShardTransaction::committed(bool durable) {
  std::erase_if(old_shards_, [&](const std::string& name) {
    return !is_shard_name(name) ||
           std::find(new_shards_.begin(), new_shards_.end(), name) != new_shards_.end();
  });
  new_shards_.clear();
  has_list_ = false;
  committing_ = false;
  try {
    remove_all(old_shards_);
    // Remove the list last: shards that reappear after a power failure must be listed.
    if (durable && !old_shards_.empty()) folder_.sync();
    folder_.remove_file(list_name_);
  } catch (const Error& error) {
    warn(folder_.display_of(index_name_) +
         ": saved; the shards of the previous version cannot be removed: " + error.what());
  }
}

void ShardTransaction::remove_all(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto info = folder_.entry_info(name);
    if (info && info->is_regular) folder_.remove_file(name);
  }
}

constexpr std::array<std::string_view, 1> kShardedSuffixes = {".safetensors.index.json"};
/// transformers' limit: 5 GB, decimal.
constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

bool probe_index(const FileHead& head) {
  if (!head.is_file() || head.info().size_bytes > kMaxHubIndexBytes) return false;
  const std::string_view start = head.head().substr(0, 64);
  const std::size_t first = start.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || start[first] != '{') return false;
  return head.file().read_all(kMaxHubIndexBytes).find("\"weight_map\"") != std::string::npos;
}

/// An index with all its shards open, so that replacing them does not affect it.
struct OpenedShards {
  os::File index_file;
  std::string index_text;
  HubIndex index;
  std::vector<OpenedFile> shards;
};

os::Directory folder_of(const Path& file) {
  return os::Directory::open(file.has_parent_path() ? file.parent_path() : Path("."));
}

/// Opens the folder with the shards of an index. For a link, it is the target's folder if any shard
/// is there, because a save through the link writes the shards there. Otherwise it is the folder of
/// the link itself: in the Hugging Face cache, the shards are links next to the index.
os::Directory folder_of_shards(const Path& path, const HubIndex& index) {
  const Path target = os::resolve_link(path);
  if (target == path) return folder_of(path);
  os::Directory folder = folder_of(target);
  const auto is_there = [&](const std::string& name) {
    return folder.entry_info(name).has_value();
  };
  return std::ranges::any_of(index.shards, is_there) ? std::move(folder) : folder_of(path);
}

/// Opens an index and its shards. A save may have removed old shards since the index was opened.
/// The callers of Format::open() detect that with os::read_unreplaced(), and retry.
OpenedShards open_indexed_shards(const Path& path) {
  OpenedShards opened;
  opened.index_file = os::File::open_read(path);
  opened.index_text = opened.index_file.read_all(kMaxHubIndexBytes);
  opened.index = parse_hub_index(opened.index_text, opened.index_file.display());
  const os::Directory folder = folder_of_shards(path, opened.index);
  for (os::File& shard : open_indexed(folder, opened.index, opened.index_file.display())) {
    opened.shards.push_back(open_file(std::move(shard)));
  }
  return opened;
}

/// Builds the tree in the order of the weight map, which must name exactly the tensors in the
/// shards.
TensorDict tree_of(const OpenedShards& opened) {
  const std::string& where = opened.index_file.display();
  TensorEntries tensors;
  std::size_t num_entries = 0;
  for (const OpenedFile& shard : opened.shards) {
    tensors.files.push_back({shard.header, shard.source});
    num_entries += shard.header->entries.size();
  }
  tensors.rows.reserve(opened.index.weight_map.size());
  tensors.index.reserve(opened.index.weight_map.size());
  const auto name_of = [&](std::uint32_t row) { return tensors.name(row); };
  for (const auto& [name, shard] : opened.index.weight_map) {
    const std::uint32_t entry = opened.shards[shard].header->find(name);
    if (entry == KeyIndex::kNone) {
      throw not_in_shard(name, opened.index.shards[shard], where);
    }
    tensors.rows.push_back({shard, entry});
    tensors.index.insert(name, static_cast<std::uint32_t>(tensors.rows.size() - 1), name_of);
  }
  if (num_entries != tensors.rows.size()) {
    for (std::size_t s = 0; s < opened.shards.size(); ++s) {
      const Header& header = *opened.shards[s].header;
      for (std::size_t i = 0; i < header.entries.size(); ++i) {
        const std::uint32_t row = tensors.find(header.name(i));
        if (row != KeyIndex::kNone && tensors.rows[row].file == s) continue;
        throw base::corrupt(where)
            .part("tensor ", base::quote(header.name(i)))
            .problem("not in the index")
            .expected("\"weight_map\" to name it for ", base::quote(opened.index.shards[s]))
            .found("no such entry");
      }
    }
  }
  return build_tree(std::move(tensors), opened.index.metadata, where);
}

TensorDict open_index(const FileHead& head, const OpenRequest& /*request*/) {
  return tree_of(open_indexed_shards(head.path()));
}

struct Shard {
  std::vector<Plan::Tensor> tensors;
  std::vector<const Plan::Tensor*> ordered;  ///< `tensors` in file order
};

struct ShardedPlan {
  Plan plan;  ///< its tensors are in the shards
  HubIndex index;
  std::vector<Shard> shards;
  std::uint64_t total_bytes = 0;
};

/// Fills shards in the order of the keys, each up to the size limit. A larger tensor gets its own
/// shard.
ShardedPlan plan_shards(const TensorDict& tree, bool notes, std::uint64_t shard_size_bytes) {
  const std::uint64_t limit = shard_size_bytes == 0 ? kDefaultShardBytes : shard_size_bytes;
  ShardedPlan result;
  result.plan = make_plan(tree, notes);
  result.plan.metadata.erase(std::string(kFormatMember));
  std::uint64_t shard_bytes = 0;
  for (Plan::Tensor& tensor : result.plan.tensors) {
    const std::uint64_t size = tensor.leaf.nbytes();
    if (result.shards.empty() || shard_bytes > limit || size > limit - shard_bytes) {
      result.shards.emplace_back();
      shard_bytes = 0;
    }
    result.index.weight_map.emplace_back(tensor.name,
                                         static_cast<std::uint32_t>(result.shards.size() - 1));
    result.shards.back().tensors.push_back(std::move(tensor));
    shard_bytes += size;
    result.total_bytes += size;
  }
  if (result.plan.flat && notes) {
    std::vector<std::string_view> names;
    for (const auto& [name, shard] : result.index.weight_map) names.push_back(name);
    add_order(result.plan, names);
  }
  result.index.metadata = result.plan.metadata;
  for (Shard& shard : result.shards) {
    for (const std::size_t i : reference_order(shard.tensors)) {
      shard.ordered.push_back(&shard.tensors[i]);
    }
  }
  return result;
}

Metadata shard_metadata() { return {{std::string(kFormatMember), "pt"}}; }

void check_plan(const TensorDict& tree) {
  const ShardedPlan plan = plan_shards(tree, true, 0);
  for (const Shard& shard : plan.shards) header_of(shard.ordered, shard_metadata());
}

/// Formats the index; with `checksums`, including its own checksum.
std::string index_text(const ShardedPlan& plan, bool checksums) {
  HubIndex index = plan.index;
  if (checksums) {
    index.metadata.insert_or_assign(std::string(kChecksumsMember), std::string(16, '0'));
  }
  std::string text = write_hub_index(index, plan.total_bytes);
  if (checksums) {
    const std::size_t at = find_checksums(text);
    text.replace(at, 16, base::hex16(hash_with_blank_digits(text, at)));
  }
  return text;
}

std::vector<std::string> shards_of_index(const os::File& file) {
  return parse_hub_index(file.read_all(kMaxHubIndexBytes), file.display()).shards;
}

/// Returns the shards of the existing index; none if there is no index.
std::vector<std::string> shards_of_present_index(const Path& path) {
  return os::exists(path) ? shards_of_index(os::File::open_read(path)) : std::vector<std::string>();
}

void write_index(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  const Path target = os::resolve_link(path);
  os::Parent parent = os::open_parent(target, true);
  if (request.zeros || !parent.name.ends_with(kShardedSuffixes[0]) ||
      parent.name.size() == kShardedSuffixes[0].size()) {
    throw base::unsupported(path.string())
        .problem("an index of shards cannot be written")
        .expected("save() to \"<name>.safetensors.index.json\"")
        .found((request.zeros ? "memmap_like" : base::quote(parent.name)));
  }
  ShardedPlan plan = plan_shards(tree, request.notes, request.shard_size_bytes);
  for (const Shard& shard : plan.shards) header_of(shard.ordered, shard_metadata());

  // Take a slot of the index first, so that concurrent saves use different names for shards.
  FileReplacement index(target, plan.total_bytes);
  ShardTransaction shards(parent.directory, parent.name, index,
                          [&target] { return shards_of_present_index(target); });
  plan.index.shards = shards.name_shards(plan.shards.size(), request.durable);
  Progress progress(request.monitor, plan.total_bytes, path.filename().string());
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    os::File file = shards.create(plan.index.shards[i], index.old_info());
    write_file(file, plan.shards[i].ordered, shard_metadata(), request, progress);
    if (request.durable) file.sync();
    file.close_written();
  }
  // The names of shards must be durable before the index is.
  if (request.durable) parent.directory.sync();
  const std::string text = index_text(plan, request.checksums);
  index.file().write_at(0, std::as_bytes(std::span(text)));
  shards.about_to_commit();
  index.publish(request.durable, [&](const os::File& old) {
    // Another save may have replaced the index first. If the replaced index cannot be read, no
    // shards are removed.
    shards.set_old_shards({});
    shards.set_old_shards(shards_of_index(old));
  });
  shards.committed(request.durable);
  progress.finish();
}

/// Compares the index with its checksum. open() misses the checksum if the name "metadata" is
/// damaged, so this searches the text. A value outside of "metadata" must have the form of a
/// checksum, because a tensor may be called "tenfold_xxh3".
void check_index(const OpenedShards& opened, VerifyReport& report) {
  const std::string_view text = opened.index_text;
  const std::size_t at = find_checksums(text);
  const auto stored = opened.index.metadata.find(kChecksumsMember);
  std::string_view digits;
  if (at != std::string_view::npos) digits = text.substr(at, text.find('"', at) - at);
  if (stored == opened.index.metadata.end()) {
    if (!parse_hex16(digits)) return;
  } else {
    digits = stored->second;
  }
  const std::string& where = opened.index_file.display();
  ++report.num_checksums;
  if (at == std::string_view::npos || digits.size() != 16) {
    report.problems.push_back(
        problem_of(base::corrupt({where, "metadata \"tenfold_xxh3\""})
                       .problem("cannot be read")
                       .expected("16 hexadecimal digits as tenfold writes them")
                       .found("another value")
                       .remedy("another tool may have changed the file")));
    return;
  }
  const std::string found = base::hex16(hash_with_blank_digits(opened.index_text, at));
  if (found != digits) {
    report.problems.push_back(
        problem_of(base::corrupt({where, "index"})
                       .problem("the checksum of ", text.size(), " bytes differs")
                       .expected(digits)
                       .found(found)
                       .remedy("the file is damaged or was changed")));
  }
}

VerifyReport verify_index(const Path& path, const VerifyRequest& request) {
  return verify_file(path, request, [&](VerifyReport& report) {
    OpenedShards opened = open_indexed_shards(path);
    tree_of(opened);
    check_index(opened, report);
    return std::move(opened.shards);
  });
}

}  // namespace

const Format kShardedFormat = {
    .name = "safetensors",
    .noun = "an index of safetensors files",
    .suffixes = kShardedSuffixes,
    .bare_roots = BareRoots::some,
    .probe = probe_index,
    .open_tree = open_index,
    .check_tree = check_plan,
    .write_tree = write_index,
    .verify = verify_index,
};

}  // namespace tenfold::detail::formats::safetensors
