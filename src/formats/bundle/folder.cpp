#include "formats/bundle/folder.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "formats/format.hpp"
#include "formats/shared/hub_cache.hpp"
#include "formats/shared/hub_index.hpp"

namespace tenfold::detail::formats::bundle {
namespace {

constexpr std::string_view kIndexSuffix = ".index.json";

os::Path absolute_of(const os::Path& path) {
  std::error_code ignored;
  const os::Path absolute = std::filesystem::absolute(path, ignored);
  return ignored ? path : absolute;
}

bool has_ends(std::string_view name, std::string_view start, std::string_view end) {
  return name.size() > start.size() + end.size() && name.starts_with(start) && name.ends_with(end);
}

/// True for "<item>_<rank>.pt".
bool is_of_rank(std::string_view name) {
  constexpr std::string_view kSuffix = ".pt";
  if (!name.ends_with(kSuffix)) return false;
  name.remove_suffix(kSuffix.size());
  const std::size_t underscore = name.rfind('_');
  if (underscore == std::string_view::npos || underscore == 0) return false;
  const std::string_view rank = name.substr(underscore + 1);
  return !rank.empty() && std::ranges::all_of(rank, base::is_digit);
}

/// True for file names that only accelerate or DeepSpeed uses.
bool is_marker(std::string_view name) {
  if (has_ends(name, "random_states_", ".pkl")) return true;
  constexpr auto kDeepSpeedNames = std::to_array<std::string_view>(
      {"mp_rank_", "zero_pp_rank_", "bf16_zero_pp_rank_", "fp16_zero_pp_rank_"});
  return std::ranges::any_of(kDeepSpeedNames,
                             [&](std::string_view start) { return has_ends(name, start, ".pt"); });
}

/// Returns the length of the longest suffix of a name that is ".json", ".pkl" or a suffix of a
/// format, and is not the whole name. Returns 0 if there is none.
std::size_t suffix_bytes(std::string_view name) {
  std::size_t most = 0;
  const auto count = [&](std::string_view suffix) {
    if (name.size() > suffix.size() && name.ends_with(suffix)) most = std::max(most, suffix.size());
  };
  for (const Format* format : all()) std::ranges::for_each(format->suffixes, count);
  count(".json");
  count(".pkl");
  return most;
}

/// Returns the shards that the index files among `names` list. Skips an index that is damaged or is
/// a link that open_shard() does not follow; its shards then become entries.
std::unordered_set<std::string> shards_in(const os::Directory& folder,
                                          const std::vector<std::string>& names) {
  std::unordered_set<std::string> shards;
  for (const std::string& name : names) {
    if (!name.ends_with(kIndexSuffix)) continue;
    try {
      const os::File file = open_shard(folder, name, folder.display());
      if (!file.valid()) continue;
      const HubIndex index = parse_hub_index(file.read_all(kMaxHubIndexBytes), file.display());
      shards.insert(index.shards.begin(), index.shards.end());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io) throw;
    }
  }
  return shards;
}

/// Returns the key for a file name. Keys must be UTF-8, so a name that is not UTF-8 is escaped.
std::string key_text(std::string_view name) {
  if (base::is_utf8(name)) return std::string(name);
  const std::string quoted = base::quote(name, 4 * name.size());
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

Folder::Folder(const os::Path& path)
    : path_(path),
      absolute_(absolute_of(path)),
      entry_(absolute_),
      directory_(os::Directory::open(path)) {}

os::Path Folder::path_of(const std::string& name) const {
  if (!entry_.is_current()) {
    throw Error::io(ESTALE, path_.string())
        .problem("the folder was replaced, moved or removed")
        .remedy("open it again");
  }
  return (absolute_of(path_) == absolute_ ? path_ : absolute_) / name;
}

bool is_bundle(const os::Directory& folder) {
  const std::string state_name = "trainer_state.json";
  const auto state = folder.entry_info(state_name);
  if (state && (state->is_regular || is_cache_link(folder, state_name))) return true;
  bool has_metadata = false;
  bool has_rank = false;
  for (const std::string& name : folder.list(kMaxEntries)) {
    if (is_marker(name)) return true;
    has_metadata |= name == "metadata.pkl";
    has_rank |= is_of_rank(name);
  }
  return has_metadata && has_rank;
}

std::vector<Entry> list_entries(const os::Directory& folder) {
  std::vector<std::string> names = folder.list(kMaxEntries + 1);
  if (names.size() > kMaxEntries) {
    throw base::unsupported(folder.display())
        .problem("too many entries")
        .expected("at most ", kMaxEntries, " files and folders")
        .found("more")
        .remedy("open the files one by one");
  }
  std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
  std::ranges::sort(names);
  const std::unordered_set<std::string> shards = shards_in(folder, names);
  std::erase_if(names, [&](const std::string& name) { return shards.contains(name); });

  // Maps a string to the number of entries of which it is the name or the stem (the name without
  // its suffix).
  std::unordered_map<std::string, std::size_t> uses;
  std::vector<std::string> stems;
  for (const std::string& name : names) {
    stems.push_back(name.substr(0, name.size() - suffix_bytes(name)));
    ++uses[stems.back()];
    if (stems.back() != name) ++uses[name];
  }
  std::vector<Entry> entries;
  std::unordered_set<std::string> keys;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string key = key_text(uses[stems[i]] == 1 ? stems[i] : names[i]);
    while (!keys.insert(key).second) key += '_';  // an escaped name may equal another name
    entries.push_back({std::move(key), std::move(names[i])});
  }
  return entries;
}

}  // namespace tenfold::detail::formats::bundle
