#pragma once

#include <cerrno>
#include <cstdint>
#include <optional>

#include <tenfold/error.hpp>

#include "os/fs/descriptor.hpp"
#include "os/fs/file.hpp"
#include "os/process.hpp"

namespace tenfold::os {

/// Identifies a file or folder. If the file system reports creation times, a later file that reuses
/// the inode number has another identity.
struct FileIdentity {
  BootId boot{};  ///< device numbers are valid within one boot of one host
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t born_ns = 0;  ///< creation time; 0 if the file system does not report it
  bool operator==(const FileIdentity&) const = default;
};

/// Identity of the entry at `path`; links are followed. Empty if there is no entry, or if the
/// system does not report its identity.
std::optional<FileIdentity> identity_of(const Path& path);

/// The entry at a path, held open: no other file or folder gets its inode number during the
/// lifetime of this object.
class NamedEntry {
 public:
  /// `path` need not exist. Links are followed.
  explicit NamedEntry(const Path& path);

  /// False if the path now names another entry than at the construction, or if the entry was
  /// created or removed since then. True if the system does not permit the check.
  bool is_current() const;

 private:
  Path path_;
  Descriptor fd_;
  std::optional<FileInfo> info_;  ///< empty: the path did not exist
  bool is_known_ = true;
};

/// The greatest number of times that a path is read while saves replace its entry.
inline constexpr int kMaxReads = 100;

[[noreturn]] void throw_replaced_always(const Path& path);

/// Calls `read`, which opens and reads `path`. Calls it again if it throws ESTALE, or if a save
/// replaced the entry at `path` during the call: the files of a replaced folder are removed one by
/// one, so a read may be incomplete even if nothing failed. After kMaxReads calls, throws the error
/// of the last call, or Error(io) (ESTALE) if that call did not fail.
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
