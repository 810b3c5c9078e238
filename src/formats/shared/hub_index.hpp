#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats {

/// The index of a sharded checkpoint, `{"metadata": {...}, "weight_map": {tensor: file}}`, as
/// huggingface_hub and transformers write it.
struct HubIndex {
  /// The members of "metadata" that are strings: not "total_size", which is a number.
  std::map<std::string, std::string, std::less<>> metadata;
  std::vector<std::string> shards;  ///< file names without duplicates, in order of first appearance
  /// For each tensor its name and the index of its file in `shards`, in the order of the index.
  std::vector<std::pair<std::string, std::uint32_t>> weight_map;
};

inline constexpr std::uint64_t kMaxHubIndexBytes = 1'000'000'000;

/// Parses and validates an index. File names are untrusted: each must be a single path component,
/// so that it cannot lead out of the folder of the index. `where` names the index. Throws
/// Error(corrupt).
HubIndex parse_hub_index(std::string_view text, const std::string& where);

/// Opens the folder with the shards of the index at `path`. If `path` is a symbolic link and the
/// folder of its target contains any of the shards, opens the folder of the target, because a save
/// through the link writes the shards there. Otherwise opens the folder of `path`: in the Hugging
/// Face cache, index and shards are links in the same folder.
os::Directory folder_of_shards(const os::Path& path, const HubIndex& index);

/// Opens the shards that `index` names in `folder`. Throws Error(corrupt) if a shard is missing,
/// and the errors of open_shard(). `where` names the index.
std::vector<os::File> open_indexed(const os::Directory& folder, const HubIndex& index,
                                   const std::string& where);

/// Returns the Error(corrupt) for the tensor `name`, which the weight map assigns to `shard`, but
/// which `shard` does not contain. `where` names the index.
Error not_in_shard(const std::string& name, const std::string& shard, const std::string& where);

/// Returns the JSON text of an index. `total_size_bytes` becomes "total_size" in "metadata".
std::string write_hub_index(const HubIndex& index, std::uint64_t total_size_bytes);

}  // namespace tenfold::detail::formats
