#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/io.hpp>

#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/fs/lease.hpp"

namespace tenfold::detail::formats {

/// Maximum number of processes that may save one file or folder at the same time.
inline constexpr int kMaxSiblings = 64;

/// A hidden name `.<name>.tenfold-<slot>` for the new version of the file or folder `<name>` (the
/// target), in the folder of the target, and the lease `.<name>.tenfold-<slot>.lease`, whose holder
/// alone may use this name. take() removes files and folders that crashed writers left under such
/// names. The destructor releases the lease. It also removes the file or folder with the hidden
/// name, unless keep() was called or the lease is lost. The `parent` of take() must outlive this
/// object.
class Sibling {
 public:
  /// Takes the first slot whose lease can be acquired and whose leftovers can be removed. Removes
  /// these leftovers, and those in later slots up to two consecutive empty slots. Throws Error(io):
  /// EBUSY if no slot can be taken; other codes if a system call fails.
  static Sibling take(os::Directory& parent, const std::string& target_name);
  Sibling(Sibling&& other) noexcept
      : parent_(other.parent_),
        name_(std::move(other.name_)),
        slot_(other.slot_),
        lease_(std::move(other.lease_)),
        is_temporary_(std::exchange(other.is_temporary_, false)) {}
  Sibling& operator=(Sibling&&) = delete;
  ~Sibling() { release(); }

  const std::string& name() const noexcept { return name_; }
  int slot() const noexcept { return slot_; }
  /// False after release(), in a forked child, and if another process took over the lease.
  bool is_ours() const { return lease_.is_held(); }
  /// Call after the commit point: the destructor then no longer removes the file or folder.
  void keep() noexcept { is_temporary_ = false; }
  /// Removes the file or folder and releases the lease, as the destructor does.
  void release() noexcept;

 private:
  Sibling(os::Directory& parent, std::string name, int slot, os::Lease lease)
      : parent_(&parent), name_(std::move(name)), slot_(slot), lease_(std::move(lease)) {}

  os::Directory* parent_;
  std::string name_;
  int slot_;
  os::Lease lease_;
  bool is_temporary_ = true;
};

/// Takes the lease of one slot of a target. Returns nullopt like os::Lease::try_acquire(), for
/// example if a live writer holds the lease.
std::optional<os::Lease> try_lease_slot(const os::Directory& parent, const std::string& target_name,
                                        int slot);

/// Returns `.<name>.tenfold-<suffix>`. If the result could exceed os::kMaxNameBytes with any of the
/// suffixes in use, `<name>` is replaced by the hexadecimal XXH3 of `name`.
std::string hidden_name(const std::string& name, const std::string& suffix);
/// True for the names that hidden_name() returns, and for those of their leases. Files and folders
/// of these names may remain after a crash.
bool is_hidden_name(std::string_view name);

/// Creates the file `name`, which must not exist. If `old` is given, the new file gets the owner,
/// group and permissions of `old`. If this process may not set the owner or group, it reduces the
/// permissions: at no time can a user who may not read `old` read the new file.
os::File create_like(os::Directory& folder, const std::string& name,
                     const std::optional<os::FileInfo>& old);

/// Whether a save locks the file that it replaces.
enum class OldFile : std::uint8_t {
  unlocked,  ///< does not lock it; for files that are never opened in "r+"
  /// Locks it until the save ends, unless this user may not open the file or the file system has no
  /// locks. The save throws Error(io) (EBUSY) if the file is open in "r+" or if another save has
  /// locked it.
  exclusive,
};

/// Atomically replaces one file: at every moment its path has the complete old content (or no file,
/// if there was none) or the complete new content.
///
///   1. Takes a Sibling, and creates a file with its name. The file gets the permissions of the old
///      file, and its owner and group if this process may set them.
///   2. The caller writes it through file().
///   3. publish(): sync of the new file (if durable); close; exchange of the two names (or rename,
///      if there is no old file or the file system cannot exchange names); sync of the parent (if
///      durable); removal of the old file. The space of a large file is freed in the background.
///
/// The exchange or rename is the commit point: later errors become warnings, except that a failed
/// sync throws. A process that mapped the old file still sees the old bytes. Without publish(), the
/// destructor removes the new file. The names are exchanged where possible, because before a rename
/// over the old file, ext4 flushes the new file even without `durable` (auto_da_alloc). Creates
/// missing folders above `path`.
class FileReplacement {
 public:
  using UseOld = std::function<void(const os::File&)>;

  /// `new_bytes`: a lower bound of the size of the new file, for os::require_free_space(): the file
  /// system must have room for the old and the new file. Follows a symbolic link at `path`. Throws
  /// Error(io) if the new file cannot fit (ENOSPC), if the parent folder does not allow new files,
  /// if `path` is a folder (EISDIR), or if Sibling::take() finds no free slot or the old file
  /// cannot be locked as `old_file` requests (EBUSY). Throws Error(invalid_argument) if `path` is a
  /// special file or does not end with a name.
  FileReplacement(const Path& path, std::uint64_t new_bytes, OldFile old_file = OldFile::unlocked);
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  os::File& file() noexcept { return file_; }
  /// The temporary name of file(), in the folder of the path to replace.
  const std::string& hidden_name() const noexcept { return sibling_->name(); }
  /// Information about the old file; empty if there was none.
  const std::optional<os::FileInfo>& old_info() const noexcept { return old_info_; }
  /// False in a forked child, and if another process took over the lease.
  bool is_ours() const { return sibling_->is_ours(); }
  /// The slot of the Sibling that this object holds.
  int slot() const noexcept { return sibling_->slot(); }
  /// Closes file() and publishes it. Throws Error(io) (EBUSY), and leaves the old file in place, in
  /// two cases: another process took over the Sibling or removed the new file; or, with
  /// OldFile::exclusive, another writer has replaced the old file since this save began, and
  /// another handle has locked the replacement. Calls `use_old` with the replaced file before it is
  /// removed, if it is readable. The replaced file may be one that another writer published during
  /// this save. Ignores an Error that `use_old` throws.
  void publish(bool durable, const UseOld& use_old = {});

 private:
  std::optional<os::FileInfo> require_regular() const;
  void lock_old();
  os::File open_old(const std::string& name) const;
  static void call_use_old(const UseOld& use_old, const os::File& old);
  std::string remove_old(const UseOld& use_old);

  os::Directory parent_;
  std::string name_;
  OldFile old_file_;
  std::optional<os::FileInfo> old_info_;
  os::File old_;  ///< locked, if requested and if the file exists
  std::optional<Sibling> sibling_;
  os::File file_;
};

/// Opens a file for shared, writable mappings. Holds a shared lock while the file is open or
/// mapped, so that a save with OldFile::exclusive throws instead of replacing the file. This does
/// not work if the file system has no locks, or if the user who saves may not open the file. Throws
/// Error(io): EBUSY during a save with OldFile::exclusive; EACCES if this user may not write the
/// file, or if the file is read-only and has several hard links.
os::File open_write_through(const Path& path);

/// A function that returns the paths of the files and folders in a folder that do not belong to the
/// saved tree. A save that replaces the folder must not remove them.
using FindForeign = std::function<std::vector<std::string>(const os::Directory&)>;

/// Returns the result of `find_foreign` for the folder at `path`; empty if there is no folder.
std::vector<std::string> foreign_at(const Path& path, const FindForeign& find_foreign);

/// Throws Error(invalid_argument), naming the first three paths, if `foreign` is not empty.
/// `expected` describes in the message which folders a save may replace.
void refuse_foreign(const Path& path, const std::vector<std::string>& foreign,
                    std::string_view expected);

/// Replaces a folder, like FileReplacement: atomically, if the file system can exchange names. The
/// caller fills folder() and syncs its files and sub-folders if the save is durable. publish()
/// syncs the folder itself (if durable), exchanges it with the old one, syncs the parent (if
/// durable) and removes the old tree. If the file system has locks, the old folder is locked
/// exclusively until the save ends: the save throws Error(io) (EBUSY) if the old folder is open for
/// writing ("r+") or if another save has locked it.
///
/// If the file system cannot exchange names, the old folder is renamed to `.<name>.tenfold-old`,
/// and the new one to `<name>`. Between the two renames, nothing is at the path. A crash between
/// them leaves the complete old folder under the hidden name, and recover_folder() renames it back.
class FolderReplacement {
 public:
  /// `new_bytes`: as for FileReplacement. publish() calls `find_foreign` with the old folder before
  /// it removes that folder. If the result is not empty, these files were added during the save:
  /// publish() then keeps the old folder as `<name>.kept-<number>`, and warns. Throws Error(io):
  /// EACCES for an old folder without write permission; ENOTDIR if `path` exists and is not a
  /// folder; ENOSPC if the new version cannot fit; EBUSY if the old folder is locked or
  /// Sibling::take() finds no free slot.
  FolderReplacement(const Path& path, std::uint64_t new_bytes, FindForeign find_foreign = {});
  FolderReplacement(const FolderReplacement&) = delete;
  FolderReplacement& operator=(const FolderReplacement&) = delete;

  os::Directory& folder() noexcept { return folder_; }
  /// The temporary name of folder() in parent().
  const std::string& hidden_name() const noexcept { return sibling_->name(); }
  const os::Directory& parent() const noexcept { return parent_; }
  /// The path to replace. If it was a symbolic link, the target of the link.
  Path path() const { return parent_.display_of(name_); }
  /// Publishes folder(). Throws Error(io) (EBUSY), and leaves the old folder in place, if
  /// another process took over the Sibling or removed the new folder, or if another handle has
  /// locked a folder that another writer published during this save.
  void publish(bool durable);
  /// Like publish() if nothing is at the path. Otherwise returns false and replaces nothing.
  bool publish_if_absent(bool durable);

 private:
  void finish_folder(bool durable);
  bool rename_if_absent(bool durable);
  bool rename_or_lock(bool durable);
  std::string replace_by_renames(bool durable);
  std::string remove_old(const std::string& name);

  os::Directory parent_;
  std::string name_;
  FindForeign find_foreign_;
  os::Directory old_;
  std::optional<Sibling> sibling_;
  os::Directory folder_;
};

/// If `path` does not exist, renames the folder `.<name>.tenfold-old`, which a crashed
/// FolderReplacement left, back to `path`. Returns true if it renamed a folder. Called before a
/// `path` that does not exist is opened or saved, and for the steps of a checkpoint directory.
bool recover_folder(const Path& path);

/// If `overwrite` is false, calls recover_folder() and throws Error(io) (EEXIST) if `path` exists
/// afterwards.
void refuse_existing(const Path& path, bool overwrite);

/// Creates or atomically replaces the file at `path`, with `bytes` as its content. Throws like
/// FileReplacement.
void replace_file(const Path& path, std::string_view bytes, bool durable);

}  // namespace tenfold::detail::formats
