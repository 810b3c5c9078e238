#include "formats/shared/hub_cache.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"

namespace tenfold::detail::formats {
namespace {

constexpr std::string_view kUp = "../";
constexpr std::string_view kBlobs = "blobs";
/// Minimum and maximum number of "../" in a cache link. The link is in `snapshots/<commit>/`, or in
/// a folder below it, and `blobs` is next to `snapshots`.
constexpr std::size_t kMinUp = 2;
constexpr std::size_t kMaxUp = 16;

/// The target of a cache link: the number of "../", and the name in `blobs/`.
struct Blob {
  std::size_t num_up = 0;
  std::string name;
};

bool is_hash(std::string_view name) {
  return (name.size() == 40 || name.size() == 64) && std::ranges::all_of(name, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::optional<Blob> blob_of(std::string_view link) {
  Blob blob;
  while (link.starts_with(kUp) && blob.num_up <= kMaxUp) {
    link.remove_prefix(kUp.size());
    ++blob.num_up;
  }
  if (blob.num_up < kMinUp || blob.num_up > kMaxUp) return std::nullopt;
  if (!link.starts_with(kBlobs) || !link.substr(kBlobs.size()).starts_with('/'))
    return std::nullopt;
  blob.name = link.substr(kBlobs.size() + 1);
  if (!is_hash(blob.name)) return std::nullopt;
  return blob;
}

os::File open_blob(const os::Directory& folder, const Blob& blob) {
  os::Directory above = folder.open_parent();
  for (std::size_t i = 1; i < blob.num_up; ++i) above = above.open_parent();
  const os::Directory blobs = os::Directory::open_at(above, std::string(kBlobs));
  return os::File::open_read_at(blobs, blob.name);
}

}  // namespace

os::File open_shard(const os::Directory& folder, const std::string& name,
                    const std::string& index_display) {
  const std::optional<std::string> link = folder.read_link(name);
  if (!link) return os::File::try_open_read_at(folder, name);
  const std::optional<Blob> blob = blob_of(*link);
  if (!blob) {
    throw base::corrupt(index_display)
        .part("shard ", base::quote(name))
        .problem("is a symbolic link")
        .expected("a regular file, or a link of the Hugging Face cache to \"../../blobs/<hash>\"")
        .found("one to ", base::quote(*link));
  }
  return open_blob(folder, *blob);
}

bool is_cache_link(const os::Directory& folder, const std::string& name) {
  const std::optional<std::string> link = folder.read_link(name);
  const std::optional<Blob> blob = link ? blob_of(*link) : std::nullopt;
  if (!blob) return false;
  try {
    return open_blob(folder, *blob).valid();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace tenfold::detail::formats
