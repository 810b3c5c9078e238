#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "os/fs/directory.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold::detail::formats::bundle {

/// The folder of a bundle, held open so that it is not taken for one that replaced it. Its entries
/// are opened by path, later. Thread-safe.
class Folder {
 public:
  explicit Folder(const os::Path& path);

  const os::Directory& directory() const noexcept { return directory_; }
  /// The path of the user, which messages name; an absolute one if the process has changed its
  /// folder meanwhile. Throws Error(io) (ESTALE) if another folder has replaced this one.
  os::Path path_of(const std::string& name) const;

 private:
  os::Path path_;
  os::Path absolute_;
  os::NamedEntry entry_;
  os::Directory directory_;
};

/// An entry of the tree, and the file or folder that it is.
struct Entry {
  std::string key;
  std::string name;
};

/// True if a trainer left the folder: one of the files that only trainers write is there.
bool is_bundle(const os::Directory& folder);

/// The entries by name. A key is the name without the suffix of its format, or the whole name where
/// that would be no other entry's alone. Hidden files and the shards that an index names are none.
/// Throws Error(unsupported) beyond kMostEntries.
std::vector<Entry> list_entries(const os::Directory& folder);

inline constexpr std::size_t kMostEntries = std::size_t{1} << 18;

}  // namespace tenfold::detail::formats::bundle
