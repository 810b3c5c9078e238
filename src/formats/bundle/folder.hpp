#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "os/fs/directory.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold::detail::formats::bundle {

/// The folder of a bundle, held open to detect its replacement. Entries of a known format are
/// opened later, by path. Thread-safe.
class Folder {
 public:
  explicit Folder(const os::Path& path);

  const os::Directory& directory() const noexcept { return directory_; }
  /// Returns the path of an entry, for opening and for messages. It begins with the folder's path
  /// as the user gave it, or as an absolute path if the process has changed its working directory
  /// since. Throws Error(io) (ESTALE) if the path does not name this folder any more.
  os::Path path_of(const std::string& name) const;

 private:
  os::Path path_;
  os::Path absolute_;
  os::NamedEntry entry_;
  os::Directory directory_;
};

/// An entry of the tree: its key, and its file or folder.
struct Entry {
  std::string key;
  std::string name;
};

/// True if the folder contains files that only trainers write.
bool is_bundle(const os::Directory& folder);

/// Lists the entries, sorted by name. The key is the name without its suffix, if that is ".json",
/// ".pkl" or the suffix of a format and the rest is unique, else the whole name. Names that are not
/// UTF-8 are escaped. Skips hidden files and folders, and shards listed by an index. Throws
/// Error(unsupported) for more than kMaxEntries, including these.
std::vector<Entry> list_entries(const os::Directory& folder);

/// Maximum number of files and folders directly in a bundle.
inline constexpr std::size_t kMaxEntries = std::size_t{1} << 18;

}  // namespace tenfold::detail::formats::bundle
