#include "formats/safetensors/shard_transaction.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include <tenfold/error.hpp>

#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "os/process.hpp"

namespace tenfold::detail::formats::safetensors {
namespace {

constexpr std::string_view kIndexSuffix = ".index.json";
constexpr std::string_view kShardSuffix = ".safetensors";
constexpr std::uint64_t kMaxListBytes = 16 << 20;

/// Returns the prefix of the file names of the lists (ShardTransaction) of writers in this slot.
std::string list_prefix(const std::string& index_name, int slot) {
  return hidden_name(index_name, "shards-" + std::to_string(slot) + "-");
}

/// Eight hexadecimal digits, different for each call except for collisions of the hash.
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

}  // namespace

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
    // If the index cannot be read, no old shards are removed.
  }
}

ShardTransaction::~ShardTransaction() {
  try {
    // Keep the shards in a forked child, because the parent process uses them. Keep them after a
    // lost lease, because another save may have removed the shards and used their names.
    if (!index_.is_ours() || (committing_ && may_be_named())) return;
    remove_all(new_shards_);
    if (has_list_) folder_.remove_file(list_name_);
  } catch (...) {
    // A later save that holds slot 0 of the index removes the files in the list.
  }
}

/// True if the index names one of the new shards. Throws if the index cannot be read.
bool ShardTransaction::may_be_named() const {
  const std::vector<std::string> present = present_shards_();
  return std::ranges::any_of(new_shards_, [&](const std::string& name) {
    return std::ranges::find(present, name) != present.end();
  });
}

/// Removes the shards and lists that crashed saves left. If a file cannot be removed, this save
/// continues, and a later save tries again.
void ShardTransaction::remove_abandoned() {
  for (const std::string& name : folder_.list()) {
    if (!name.starts_with(hidden_name(index_name_, "shards-"))) continue;
    try {
      for (int slot = 0; slot < kMaxSiblings; ++slot) {
        if (!name.starts_with(list_prefix(index_name_, slot))) continue;
        // If the lease can be acquired, the writer has ended. While this save holds it, no other
        // writer can start in the slot.
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

/// Removes a list and the shards in it that the index does not name. The caller must hold the slot
/// of the list's writer, so that no save can publish an index that names these shards.
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

std::vector<std::string> ShardTransaction::name_shards(std::size_t count, bool durable,
                                                       const std::string& part) {
  const std::string stem =
      index_name_.substr(0, index_name_.size() - kIndexSuffix.size() - kShardSuffix.size());
  const std::string id = save_id();
  const auto names_from = [&](std::string base) {
    const std::string end = "-of-" + five_digits(count) + part + std::string(kShardSuffix);
    // A base that is too long is replaced by its hash.
    if (base.size() + 1 + five_digits(count).size() + end.size() > os::kMaxNameBytes) {
      base = base::hex16(base::xxh3(std::as_bytes(std::span(base))));
    }
    std::vector<std::string> names;
    for (std::size_t i = 1; i <= count; ++i) names.push_back(base + "-" + five_digits(i) + end);
    return names;
  };
  std::vector<std::string> names = names_from(stem);
  if (index_.slot() != 0 || !are_free(names)) names = names_from(stem + "-" + id);
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  os::File list;
  if (has_list_) {
    list = os::File::open_read_write_at(folder_, list_name_);
  } else {
    for (const std::string& name : old_shards_) text += name + "\n";
    list_name_ = list_prefix(index_name_, index_.slot()) + id;
    constexpr std::uint32_t kOwnerOnly = 0600;
    list = os::File::create_at(folder_, list_name_, kOwnerOnly);
    has_list_ = true;
  }
  list.write_at(list.size_bytes(), std::as_bytes(std::span(text)));
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

}  // namespace tenfold::detail::formats::safetensors
