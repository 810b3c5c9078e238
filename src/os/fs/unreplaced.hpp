#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>

#include <tenfold/error.hpp>

#include "os/fs/descriptor.hpp"
#include "os/fs/file.hpp"
#include "os/process.hpp"

namespace tenfold::os {

/// Tells a file or folder from every other one, also from one that got its inode number later.
struct FileIdentity {
  BootId boot{};  ///< device numbers hold for one boot of one host
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t born_ns = 0;  ///< 0 where the file system does not say
  bool operator==(const FileIdentity&) const = default;
};

/// Of what `path` names; links are followed. Nothing if it names nothing, or the system does not
/// say.
std::optional<FileIdentity> identity_of(const Path& path);

/// What a path names, held open: no other file or folder gets its inode number while this lives.
class NamedEntry {
 public:
  /// `path` may name nothing. Links are followed.
  explicit NamedEntry(const Path& path);

  /// False if the path names something else by now. True if the system does not say.
  bool is_current() const;

 private:
  Path path_;
  Descriptor fd_;
  std::optional<FileInfo> info_;  ///< nothing: the path named nothing
  bool is_known_ = true;
};

/// How often a path is read again because a save replaced what it names.
inline constexpr int kMaxReads = 100;

[[noreturn]] void throw_replaced_always(const Path& path);

/// Calls `read`, which opens `path` and reads there, and calls it again if a save replaced what the
/// path names in the meantime: an old folder loses its files one by one, so what was read of it may
/// be incomplete even if nothing failed. Error(io) (ESTALE) after kMaxReads calls.
///
/// `read` may be called several times; only its last result is returned.
template <class Read>
auto read_unreplaced(const Path& path, const Read& read) {
  for (int num_reads = 1;; ++num_reads) {
    const NamedEntry entry(path);
    try {
      auto result = read();
      if (entry.is_current()) return result;
    } catch (const Error& error) {
      const bool was_replaced = error.system_errno() == ESTALE || !entry.is_current();
      if (!was_replaced || num_reads == kMaxReads) throw;
    }
    if (num_reads == kMaxReads) throw_replaced_always(path);
  }
}

}  // namespace tenfold::os
