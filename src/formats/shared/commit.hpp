#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/io.hpp>

#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "os/fs/lease.hpp"

namespace tenfold::detail::formats {

/// Writers of one target that can be at work at once.
inline constexpr int kMaxSiblings = 64;

/// A hidden name beside a target, `.<name>.tenfold-<slot>`, that this writer alone may use while it
/// holds the lease `.<name>.tenfold-<slot>.lease`. What a dead writer left under it is removed
/// first, so that a crash leaves no litter after the next save; what is under it at the end is
/// removed unless keep() was called. `parent` must stay where it is.
class Sibling {
 public:
  /// Takes the first free slot, with nothing under its name. Throws Error(io) (EBUSY) if 64 writers
  /// are at work.
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
  /// False in a forked child, and if another host took this process for dead.
  bool is_ours() const { return lease_.is_held(); }
  /// What is under the name from now on is somebody else's business: the commit point is passed.
  void keep() noexcept { is_temporary_ = false; }
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

/// The lease of one slot of a target: to clean up after its writer, if that one is dead.
std::optional<os::Lease> try_lease_slot(const os::Directory& parent, const std::string& target_name,
                                        int slot);

/// `.<name>.tenfold-<suffix>`; a hash stands for a name that would become too long.
std::string hidden_name(const std::string& name, const std::string& suffix);

/// A new file with permissions and owner of `old`, if there is one: nobody reads it who could not
/// read that.
os::File create_like(os::Directory& folder, const std::string& name,
                     const std::optional<os::FileInfo>& old);

/// Whether a save may go on beside an `r+` handle of the file that it replaces.
enum class OldFile : std::uint8_t {
  unlocked,   ///< no handle writes through such files
  exclusive,  ///< its lock is held for the whole save: EBUSY if somebody writes through it
};

/// Replaces one file so that its name holds, at every moment, the old bytes or the new, whole:
///
///   1. a Sibling is taken and created with the permissions and the owner of the old file
///   2. the caller writes it through file()
///   3. publish(): fsync of the new file (durable); close; exchange with the old name (or rename,
///      where there is none or the file system cannot exchange); fsync of the parent (durable);
///      the old file is removed, and its space freed in the background
///
/// The exchange is the commit point: what fails after it is a warning, but for the fsync.
/// Readers that mapped the old file keep its bytes. Without publish() the destructor removes the
/// sibling. Plain rename-over is avoided because ext4 flushes the new file before it
/// (auto_da_alloc). Missing folders above `path` are made.
class FileReplacement {
 public:
  using LookAtOld = std::function<void(const os::File&)>;

  /// `new_bytes`: what will be written at least, beside the old version. Links are followed. Throws
  /// Error(io) if that cannot fit (ENOSPC), the parent allows no sibling, `path` is a folder
  /// (EISDIR) or its lock is held (EBUSY), Error(invalid_argument) if it is neither file nor
  /// folder.
  FileReplacement(const Path& path, std::uint64_t new_bytes, OldFile old_file = OldFile::unlocked);
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  os::File& file() noexcept { return file_; }
  /// Of file(), beside the one that is replaced.
  const std::string& hidden_name() const noexcept { return sibling_->name(); }
  /// Of the old file; nothing if there was none.
  const std::optional<os::FileInfo>& old_info() const noexcept { return old_info_; }
  /// False in a forked child, and if another host took this process for dead.
  bool is_ours() const { return sibling_->is_ours(); }
  /// Held as long as this object lives.
  int slot() const noexcept { return sibling_->slot(); }
  /// Closes file(). Throws Error(io) (EBUSY), with the old file in place, if the sibling is not
  /// this writer's any more. `look_at_old` gets the file that was replaced, which another writer
  /// may have put there since the save began, before it is removed.
  void publish(bool durable, const LookAtOld& look_at_old = {});

 private:
  std::optional<os::FileInfo> require_regular() const;
  void lock_old();
  os::File open_old(const std::string& name) const;
  static void look(const LookAtOld& look_at_old, const os::File& old);
  std::string remove_old(const LookAtOld& look_at_old);

  os::Directory parent_;
  std::string name_;
  OldFile old_file_;
  std::optional<os::FileInfo> old_info_;
  os::File old_;  ///< locked, if the lock is wanted and there is one
  std::optional<Sibling> sibling_;
  os::File file_;
};

/// Opens a file that its reader writes through, with a shared lock that stays as long as it is open
/// or mapped, so that no save replaces it meanwhile. Throws Error(io) (EBUSY) if a save is under
/// way. Where the file system has no locks, nothing keeps saves away.
os::File open_write_through(const Path& path);

/// What a folder that is replaced holds, and the new one does not answer for: it is never removed.
using FindForeign = std::function<std::vector<std::string>(const os::Directory&)>;

/// The same for a folder. The caller fills folder() and syncs its files and sub-folders (durable);
/// publish() syncs the folder itself, exchanges it with the old one, syncs the parent and removes
/// the old tree. While it is prepared and published the old folder is locked exclusively: Error(io)
/// if someone holds it open for writing ("r+").
///
/// Where the file system cannot exchange: the old folder is renamed to `.<name>.tenfold-old`, the
/// new one moved in; a kill between the two leaves the old one whole under that name, and
/// recover_folder() puts it back.
class FolderReplacement {
 public:
  /// `new_bytes`: what will be written at least, beside the old version. `find_foreign` is asked of
  /// the old tree before it is removed: if files arrived during the save, it is kept beside the new
  /// one, with a warning. Throws Error(io) (EACCES) for an old folder without write permission,
  /// (ENOSPC) if the new version cannot fit.
  FolderReplacement(const Path& path, std::uint64_t new_bytes, FindForeign find_foreign = {});
  FolderReplacement(const FolderReplacement&) = delete;
  FolderReplacement& operator=(const FolderReplacement&) = delete;

  os::Directory& folder() noexcept { return folder_; }
  /// Of folder(), beside the one that is replaced.
  const std::string& hidden_name() const noexcept { return sibling_->name(); }
  void publish(bool durable);

 private:
  std::string step_aside_and_move_in(bool durable);
  std::string remove_old(const std::string& name);

  os::Directory parent_;
  std::string name_;
  FindForeign find_foreign_;
  os::Directory old_;
  std::optional<Sibling> sibling_;
  os::Directory folder_;
};

/// Puts back a folder that a killed replacement left as `.<name>.tenfold-old` (file systems
/// without exchange). Called by open, load and save when `path` does not exist; true if it did
/// something.
bool recover_folder(const Path& path);

/// Replaces the file at `path` by these bytes, by one FileReplacement.
void replace_file(const Path& path, std::string_view bytes, bool durable);

}  // namespace tenfold::detail::formats
