#include "formats/safetensors_shards.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/checksum.hpp"

namespace tenfold {
namespace {

constexpr std::string_view kIndexSuffix = ".index.json";
constexpr std::string_view kShardSuffix = ".safetensors";
constexpr std::uint64_t kMaxListBytes = 16 << 20;
constexpr int kMaxNameAttempts = 64;

std::string list_prefix(const std::string& index_name) {
  return "." + index_name + ".tenfold-shards-";
}

/// Eight digits that tell this save from others; whether they are free is checked by the caller.
std::string save_id() {
  static std::atomic<std::uint64_t> count{0};
  const std::uint64_t words[2] = {
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()),
      count.fetch_add(1)};
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
    if (end == std::string_view::npos) break;  // torn: a line counts when it is whole
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
                                   std::vector<std::string> old_shards)
    : folder_(folder), index_name_(std::move(index_name)), old_shards_(std::move(old_shards)) {
  const std::string prefix = list_prefix(index_name_);
  for (const std::string& name : folder_.list()) {
    if (!name.starts_with(prefix)) continue;
    try {
      os::File list = os::File::try_open_read_at(folder_, name);
      if (!list.valid() || !list.try_lock_exclusive()) continue;  // its writer lives
      std::vector<std::string> left = lines_of(list.read_all(kMaxListBytes));
      std::erase_if(left, [&](const std::string& shard) {
        return !is_shard_name(shard) ||
               std::find(old_shards_.begin(), old_shards_.end(), shard) != old_shards_.end();
      });
      remove_all(left);
      folder_.remove_file(name);
    } catch (const Error&) {
      // Litter that cannot be removed is no reason to fail a save; the next one meets it again.
    }
  }
}

ShardTransaction::~ShardTransaction() {
  if (committing_) return;
  try {
    remove_all(new_shards_);
    if (list_.valid()) folder_.remove_file(list_name_);
  } catch (...) {
    // The list tells the next save.
  }
}

std::vector<std::string> ShardTransaction::name_shards(std::size_t count, bool durable) {
  const std::string stem =
      index_name_.substr(0, index_name_.size() - kIndexSuffix.size() - kShardSuffix.size());
  for (int attempt = 0; attempt < kMaxNameAttempts; ++attempt) {
    const std::string id = save_id();
    const std::string base = attempt == 0 ? stem : stem + "-" + id;
    std::vector<std::string> names;
    bool free = true;
    for (std::size_t i = 1; i <= count && free; ++i) {
      names.push_back(base + "-" + five_digits(i) + "-of-" + five_digits(count) +
                      std::string(kShardSuffix));
      free = !folder_.entry_info(names.back()).has_value();
    }
    if (!free) continue;
    list_name_ = list_prefix(index_name_) + id;
    list_ = os::File::create_at(folder_, list_name_);
    // Another save may have taken the list, not yet locked, for a dead one's.
    if (!list_.try_lock_exclusive()) continue;
    const auto named = folder_.entry_info(list_name_);
    if (!named || !named->same_file(list_.info())) continue;
    std::string text;
    for (const std::string& name : names) text += name + "\n";
    for (const std::string& name : old_shards_) text += name + "\n";
    list_.write_at(0, std::as_bytes(std::span(text)));
    if (durable) {
      list_.sync();
      folder_.sync();
    }
    new_shards_ = names;
    return names;
  }
  throw Error(ErrorCode::io, folder_.display_of(stem) +
                                 ": no free names for shards: expected none of them to exist, "
                                 "found that they do");
}

void ShardTransaction::about_to_commit(std::vector<std::string> old_shards) {
  old_shards_ = std::move(old_shards);
  committing_ = true;
}

void ShardTransaction::committed() {
  std::erase_if(old_shards_, [&](const std::string& name) {
    return !is_shard_name(name) ||
           std::find(new_shards_.begin(), new_shards_.end(), name) != new_shards_.end();
  });
  remove_all(old_shards_);
  folder_.remove_file(list_name_);
  list_.close();
  new_shards_.clear();
  committing_ = false;
}

void ShardTransaction::remove_all(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto info = folder_.entry_info(name);
    if (info && info->is_regular) folder_.remove_file(name);
  }
}

}  // namespace tenfold
