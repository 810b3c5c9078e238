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
  /// Throws Error(file_not_found) and Error(io).
  explicit Folder(const os::Path& path);

  const os::Directory& directory() const noexcept { return directory_; }
  /// Returns the path of an entry, for opening and for messages. It begins with the path that the
  /// constructor received, or with the absolute form of that path if the working directory of the
  /// process has changed since. Throws Error(io) (ESTALE) if the path no longer names this folder.
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

/// True if the names of files in the folder are typical of a trainer: "trainer_state.json", a name
/// that only accelerate or DeepSpeed uses, or "metadata.pkl" together with a file
/// "<item>_<rank>.pt". Reads at most kMaxEntries names.
bool is_bundle(const os::Directory& folder);

/// Lists the entries, sorted by name. The key of an entry is its name without the suffix, which is
/// ".json", ".pkl" or a suffix of a format. If the name without the suffix also is the name of
/// another entry, or the name of another entry without its suffix, the key is the whole name. A
/// name that is not UTF-8 is escaped, and "_" is appended until the key is unique. Skips hidden
/// files and folders, and shards that an index lists. Throws Error(unsupported) if the folder has
/// more than kMaxEntries files and folders, including the skipped ones.
std::vector<Entry> list_entries(const os::Directory& folder);

/// Maximum number of files and folders directly in a bundle.
inline constexpr std::size_t kMaxEntries = std::size_t{1} << 18;

}  // namespace tenfold::detail::formats::bundle
