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
/// the inode number has a different identity, unless it was created at the same clock tick.
struct FileIdentity {
  BootId boot{};  ///< device numbers are valid within one boot of one host
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::int64_t born_ns = 0;  ///< creation time; 0 if the file system does not report it
  bool operator==(const FileIdentity&) const = default;
};

/// Identity of the entry at `path`; links are followed. Returns nullopt if there is no entry, or if
/// the system does not report its identity.
std::optional<FileIdentity> identity_of(const Path& path);

/// The file or folder at a path, if there is one. It is held open, so a local file system gives its
/// inode number to no other file during the lifetime of this object.
class NamedEntry {
 public:
  /// `path` need not exist. Links are followed.
  explicit NamedEntry(const Path& path);

  /// False if the path now names a different file than at the construction, or if it named a file
  /// at only one of the two times. True if the system does not permit the check.
  bool is_current() const;

 private:
  Path path_;
  Descriptor fd_;
  std::optional<FileInfo> info_;  ///< empty: the path did not exist
  bool is_known_ = true;
};

/// The maximum number of times that read_unreplaced() calls `read`.
inline constexpr int kMaxReads = 100;

[[noreturn]] void throw_replaced_always(const Path& path);

/// Calls `read`, which opens and reads `path`, and returns its result. Calls `read` again if it
/// throws an Error with errno ESTALE, or if the file or folder at `path` was replaced during the
/// call. After kMaxReads calls, throws the error of the last call, or Error(io) (ESTALE) if that
/// call did not fail.
///
/// A call of `read` that succeeds is repeated, too, because the files of a replaced folder are
/// removed one by one, so `read` may miss some of them without an error.
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
