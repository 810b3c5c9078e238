#include "formats/shared/commit.hpp"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/notes/notes.hpp"
#include "os/fs/free_space.hpp"
#include "os/fs/unreplaced.hpp"
#include "os/thread/background.hpp"

namespace tenfold::detail::formats {
namespace {

constexpr std::string_view kHiddenMarker = ".tenfold-";

}  // namespace

std::string hidden_name(const std::string& name, const std::string& suffix) {
  constexpr std::string_view kLongestSuffix = "shards-63-01234567";
  const bool fits =
      1 + name.size() + kHiddenMarker.size() + kLongestSuffix.size() <= os::kMaxNameBytes;
  const std::string stem = fits ? name : base::hex16(base::xxh3(std::as_bytes(std::span(name))));
  return "." + stem + std::string(kHiddenMarker) + suffix;
}

bool is_hidden_name(std::string_view name) {
  return name.starts_with('.') && name.find(kHiddenMarker) != std::string_view::npos;
}

namespace {

/// Maximum number of attempts of an operation that races with other writers.
constexpr int kMaxAttempts = 100;
/// A replaced file of at least this size is closed in the background, because the close frees its
/// space, which takes long. For a smaller file, starting a thread takes as long as the close.
constexpr std::uint64_t kSlowlyFreedBytes = std::uint64_t{4} << 20;
/// Mode bits that a new version may have before the permissions of the old one are copied, so that
/// other users cannot read a private file in the meantime.
constexpr std::uint32_t kOwnerOnly = 0700;
constexpr std::uint32_t kAllUsers = 0777;  // before the umask

std::string sibling_name(const std::string& name, int slot) {
  return hidden_name(name, std::to_string(slot));
}

std::string lease_name(const std::string& hidden) { return hidden + ".lease"; }

std::string replaced_name(const std::string& name) { return hidden_name(name, "old"); }

/// True if `name` still refers to `opened`: the file or folder was not replaced after it was
/// opened.
template <class Opened>
bool is_still_named(const os::Directory& parent, const std::string& name, const Opened& opened) {
  const auto now = parent.entry_info(name);
  return now && now->same_file(opened.info());
}

/// Removes the file or folder `name` that a writer left, if there is one. Returns false for a
/// special file, and if the removal fails with EACCES, EPERM, EBUSY or ENOTEMPTY; throws any other
/// error. The caller must hold the lease of `name`.
bool remove_leftover(os::Directory& parent, const std::string& name) {
  const auto found = parent.entry_info(name);
  if (!found) return true;
  if (!found->is_regular && !found->is_directory) return false;
  try {
    parent.remove_tree(name);
  } catch (const Error& error) {
    const int code = error.system_errno();
    if (code == EACCES || code == EPERM || code == EBUSY || code == ENOTEMPTY) return false;
    throw;
  }
  return true;
}

/// Removes what crashed writers left in the slots above `taken`, until two consecutive slots are
/// empty. Ignores errors, so that the save does not fail: the next save of the target tries again.
void clear_later_slots(os::Directory& parent, const std::string& target_name, int taken) {
  constexpr int kMaxEmpty = 2;
  int num_empty = 0;
  for (int slot = taken + 1; slot < kMaxSiblings && num_empty < kMaxEmpty; ++slot) {
    try {
      const std::string name = sibling_name(target_name, slot);
      const bool is_empty = !parent.entry_info(name) && !parent.entry_info(lease_name(name));
      num_empty = is_empty ? num_empty + 1 : 0;
      if (is_empty) continue;
      const auto lease = try_lease_slot(parent, target_name, slot);
      if (lease) static_cast<void>(remove_leftover(parent, name));
    } catch (const Error&) {
      continue;
    }
  }
}

[[noreturn]] void throw_in_use(const std::string& display, std::string_view what,
                               const std::string& holder = {}) {
  throw Error::io(EBUSY, display)
      .problem("the ", what, " is in use")
      .expected("no other handle")
      .found("one opened \"r+\" or a save under way", holder)
      .remedy("close the handle, or try again after that save");
}

[[noreturn]] void throw_lost_sibling(const std::string& display, const std::string& sibling) {
  throw Error::io(EBUSY, display)
      .problem("not saved")
      .expected(base::quote(sibling), " to belong to this save")
      .found(
          "that it no longer does: the process forked, or it was stopped for so long that another "
          "process took over, or another program removed the hidden file or folder")
      .remedy("save again");
}

/// Locks the folder `name` exclusively, if the file system has locks. Returns nullopt if there is
/// no entry of that name. Throws Error(io): EBUSY if another handle has locked the folder, ENOTDIR
/// if the entry is not a folder.
std::optional<os::Directory> lock_folder(const os::Directory& parent, const std::string& name) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const auto found = parent.entry_info(name);
    if (!found) return std::nullopt;
    const std::string display = parent.display_of(name);
    if (!found->is_directory) {
      throw Error::io(ENOTDIR, display)
          .expected("a folder or nothing")
          .found(found->is_regular ? "a file" : "a special file")
          .remedy("remove it first");
    }
    os::Directory folder = os::Directory::try_open_at(parent, name);
    if (!folder.valid()) continue;
    if (folder.try_lock_exclusive() == os::LockResult::held) {
      throw_in_use(display, "folder", os::held_by(*found));
    }
    if (is_still_named(parent, name, folder)) return folder;
  }
  throw_in_use(parent.display_of(name), "folder");
}

/// Exchanges the names `sibling` and `name`. Returns false if the file system cannot exchange
/// names. Returns nullopt if another process has removed `name` since the caller found it; if
/// `attempt` has reached kMaxAttempts, throws Error(file_not_found) instead.
std::optional<bool> exchange_or_absent(os::Directory& parent, const std::string& sibling,
                                       const std::string& name, int attempt) {
  try {
    return parent.exchange(sibling, name);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::file_not_found || attempt >= kMaxAttempts) throw;
    return std::nullopt;
  }
}

/// Removes the folder `aside`, if it exists. If it cannot be removed (for example on FUSE or NFS,
/// which keep the names of open files), renames it to the hidden name of a free slot of `name`, so
/// that a later save removes it.
void remove_replaced(os::Directory& parent, const std::string& aside, const std::string& name) {
  if (remove_leftover(parent, aside)) return;
  Sibling later = Sibling::take(parent, name);
  parent.rename(aside, later.name());
  later.keep();
}

/// Undoes or completes the replacement of a folder by a writer that crashed and left the folder
/// `.<name>.tenfold-old`. If nothing is at `name`, renames this folder back to `name` and returns
/// true. Otherwise removes it and returns false. Also returns false if there is no such folder, or
/// if its writer is alive.
bool finish_replacement(os::Directory& parent, const std::string& name) {
  const std::string aside = replaced_name(name);
  const auto found = parent.entry_info(aside);
  if (!found || !found->is_directory) return false;
  // If another writer holds the lease, it is alive: it is between its two renames, or is removing
  // the folder.
  const auto lease = os::Lease::try_acquire(parent, lease_name(aside));
  if (!lease || !parent.entry_info(aside)) return false;
  if (parent.rename_if_absent(aside, name)) return true;
  remove_replaced(parent, aside, name);
  return false;
}

/// Returns the text of the warning that the old version cannot be removed.
std::string not_removed(const std::string& display, const std::string& sibling,
                        std::string_view why) {
  return display + ": saved; the previous version, " + base::quote(sibling) +
         ", cannot be removed: " + std::string(why);
}

}  // namespace

std::optional<os::Lease> try_lease_slot(const os::Directory& parent, const std::string& target_name,
                                        int slot) {
  return os::Lease::try_acquire(parent, lease_name(sibling_name(target_name, slot)));
}

os::File create_like(os::Directory& folder, const std::string& name,
                     const std::optional<os::FileInfo>& old) {
  if (!old) return os::File::create_at(folder, name);
  os::File file = os::File::create_at(folder, name, old->mode & kOwnerOnly);
  try {
    file.copy_permissions(*old);
  } catch (...) {
    folder.remove_file(name);
    throw;
  }
  return file;
}

void Sibling::release() noexcept {
  try {
    if (is_temporary_ && is_ours()) parent_->remove_tree(name_);
  } catch (...) {
    // The next save removes it.
  }
  is_temporary_ = false;
  lease_.release();
}

Sibling Sibling::take(os::Directory& parent, const std::string& target_name) {
  for (int slot = 0; slot < kMaxSiblings; ++slot) {
    const std::string name = sibling_name(target_name, slot);
    auto lease = try_lease_slot(parent, target_name, slot);
    if (!lease || !remove_leftover(parent, name)) continue;
    clear_later_slots(parent, target_name, slot);
    return Sibling(parent, name, slot, std::move(*lease));
  }
  throw Error::io(EBUSY, parent.display_of(target_name))
      .problem("too many concurrent writers")
      .expected("at most ", kMaxSiblings)
      .remedy("if no save is running, remove ", sibling_name(target_name, 0),
              " and the files whose names differ from this only in the number");
}

FileReplacement::FileReplacement(const Path& path, std::uint64_t new_bytes, OldFile old_file)
    : old_file_(old_file) {
  // Wait until the space of previously replaced files is free.
  os::await_background_closes();
  const Path target = os::resolve_link(path);
  os::Parent parent = os::open_parent(target, true);
  parent_ = std::move(parent.directory);
  name_ = std::move(parent.name);
  old_info_ = require_regular();
  lock_old();
  sibling_.emplace(Sibling::take(parent_, name_));
  os::require_free_space(parent_.fd(), parent_.display_of(name_), new_bytes);
  file_ = create_like(parent_, sibling_->name(), old_info_);
}

/// Returns information about the existing file, if any. Throws if it is not a regular file.
std::optional<os::FileInfo> FileReplacement::require_regular() const {
  const auto found = parent_.entry_info(name_);
  if (!found || found->is_regular) return found;
  const std::string display = parent_.display_of(name_);
  if (found->is_directory) {
    throw Error::io(EISDIR, display)
        .expected("a file or nothing")
        .found("a folder")
        .remedy("remove it first");
  }
  throw base::invalid_argument(display)
      .expected("a regular file or nothing")
      .found("a special file");
}

/// Locks the old file until the end of the save, if OldFile::exclusive was requested.
void FileReplacement::lock_old() {
  if (old_file_ != OldFile::exclusive) return;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const auto found = parent_.entry_info(name_);
    if (!found || !found->is_regular) return;
    try {
      // NFSv4 grants an exclusive lock only to descriptors that are open for writing.
      old_ = os::File::open_read_write_at(parent_, name_);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::file_not_found) continue;
      try {
        old_ = os::File::try_open_read_at(parent_, name_);
      } catch (const Error& of_read) {
        // Without permission to open the file, save without locking it. After any other failure,
        // for example if no descriptor is free, fail: another handle may have the file open.
        const int code = of_read.system_errno();
        if (code == EACCES || code == EPERM) return;
        throw;
      }
      if (!old_.valid()) continue;
    }
    if (old_.try_lock_exclusive() == os::LockResult::held) {
      throw_in_use(parent_.display_of(name_), "file", os::held_by(*found));
    }
    if (is_still_named(parent_, name_, old_)) return;
  }
  throw_in_use(parent_.display_of(name_), "file");
}

void FileReplacement::publish(bool durable, const UseOld& use_old) {
  if (const auto old = require_regular()) file_.copy_permissions(*old);
  if (durable) file_.sync();
  const os::FileInfo made = file_.info();
  file_.close_written();
  const auto now = parent_.entry_info(sibling_->name());
  if (!now || !now->same_file(made) || !sibling_->is_ours()) {
    throw_lost_sibling(parent_.display_of(name_), sibling_->name());
  }
  std::optional<bool> exchanged;
  for (int attempt = 1; !exchanged; ++attempt) {
    if (!parent_.entry_info(name_) && parent_.rename_if_absent(sibling_->name(), name_)) break;
    // Another writer may have created or replaced the file since the save began.
    require_regular();
    if (!old_.valid() || !is_still_named(parent_, name_, old_)) lock_old();
    exchanged = exchange_or_absent(parent_, sibling_->name(), name_, attempt);
  }
  if (exchanged == false) {
    call_use_old(use_old, open_old(name_));
    parent_.rename(sibling_->name(), name_);
  }
  // After an exchange, the sibling's name belongs to the old file, which is kept until the exchange
  // is durable.
  sibling_->keep();
  if (durable) parent_.sync();
  std::string problem;
  if (exchanged == true) problem = remove_old(use_old);
  old_.close();
  if (!problem.empty()) warn(problem);
}

/// Opens the old file. Returns an invalid File if it cannot be opened.
os::File FileReplacement::open_old(const std::string& name) const {
  try {
    return os::File::try_open_read_at(parent_, name);
  } catch (const Error&) {
    return {};
  }
}

void FileReplacement::call_use_old(const UseOld& use_old, const os::File& old) {
  try {
    if (use_old && old.valid()) use_old(old);
  } catch (const Error&) {
    // A damaged old file must not make the save fail.
  }
}

/// Removes the old file, which has the sibling's name after the exchange. Returns the text of a
/// warning if the removal failed, else "".
std::string FileReplacement::remove_old(const UseOld& use_old) {
  try {
    const auto there = parent_.entry_info(sibling_->name());
    const bool is_large = there && there->is_regular && there->size_bytes >= kSlowlyFreedBytes;
    os::File old;
    if (is_large || use_old) old = open_old(sibling_->name());
    call_use_old(use_old, old);
    parent_.remove_file(sibling_->name());
    if (is_large && old.valid()) {
      old_.close();
      os::close_in_background(std::move(old));
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::file_not_found) return {};
    return not_removed(parent_.display_of(name_), sibling_->name(), error.what());
  }
  return {};
}

os::File open_write_through(const Path& path) {
  constexpr std::uint32_t kWriteBits = 0222;
  const os::FileInfo now = os::file_info(path);
  if (now.num_links > 1 && (now.mode & kWriteBits) == 0) {
    throw Error::io(EACCES, path.string())
        .problem("it cannot be written in place")
        .expected("a file with one hard link")
        .found(now.num_links, ": steps of a checkpoint directory share unchanged files")
        .remedy(
            "CheckpointManager.export (in C++: export_step) makes a copy of the step to write "
            "into");
  }
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    os::File file = os::File::open_read_write(path);
    const os::FileInfo info = file.info();
    if (file.try_lock_shared() == os::LockResult::held) {
      throw Error::io(EBUSY, file.display())
          .problem("the file is in use")
          .expected("no concurrent save")
          .found("a save under way", os::held_by(info))
          .remedy("open it again after that save");
    }
    // If the file was replaced between open and lock, the open file is no longer at the path.
    if (os::exists(path) && os::file_info(path).same_file(info)) return file;
  }
  throw_in_use(path.string(), "file");
}

std::vector<std::string> foreign_at(const Path& path, const FindForeign& find_foreign) {
  if (!os::exists(path)) return {};
  const Path target = os::resolve_link(path);
  if (!os::exists(target) || !os::file_info(target).is_directory) return {};
  // A concurrent save may replace and remove this folder while `find_foreign` lists it.
  return os::read_unreplaced(target, [&] { return find_foreign(os::Directory::open(target)); });
}

void refuse_foreign(const Path& path, const std::vector<std::string>& foreign,
                    std::string_view expected) {
  if (foreign.empty()) return;
  constexpr std::size_t kForeignNamed = 3;
  std::string found;
  for (std::size_t i = 0; i < std::min(kForeignNamed, foreign.size()); ++i) {
    found += (i == 0 ? "" : ", ") + base::quote(foreign[i]);
  }
  if (foreign.size() > kForeignNamed) {
    found += " and " + std::to_string(foreign.size() - kForeignNamed) + " more";
  }
  throw base::invalid_argument(path.string())
      .part("folder to replace")
      .expected(expected)
      .found(found)
      .remedy("save to another path, or remove these first");
}

FolderReplacement::FolderReplacement(const Path& path, std::uint64_t new_bytes,
                                     FindForeign find_foreign)
    : find_foreign_(std::move(find_foreign)) {
  const Path target = os::resolve_link(path);
  os::Parent parent = os::open_parent(target, true);
  parent_ = std::move(parent.directory);
  name_ = std::move(parent.name);
  finish_replacement(parent_, name_);
  if (auto old = lock_folder(parent_, name_)) old_ = std::move(*old);
  if (old_.valid() && !old_.is_writable()) {
    const std::string display = parent_.display_of(name_);
    throw Error::io(EACCES, display)
        .part("folder to replace")
        .expected("write permission")
        .found("none")
        .remedy("chmod u+w it, or save to another path");
  }
  sibling_.emplace(Sibling::take(parent_, name_));
  os::require_free_space(parent_.fd(), parent_.display_of(name_), new_bytes);
  parent_.create_directory(sibling_->name(), old_.valid() ? kOwnerOnly : kAllUsers);
  folder_ = os::Directory::open_at(parent_, sibling_->name());
  if (old_.valid()) folder_.copy_permissions(old_.info());
}

void FolderReplacement::finish_folder(bool durable) {
  if (old_.valid()) folder_.copy_permissions(old_.info());
  if (durable) folder_.sync();
  if (!is_still_named(parent_, sibling_->name(), folder_) || !sibling_->is_ours()) {
    throw_lost_sibling(parent_.display_of(name_), sibling_->name());
  }
}

bool FolderReplacement::rename_if_absent(bool durable) {
  if (!parent_.rename_if_absent(sibling_->name(), name_)) return false;
  sibling_->keep();
  if (durable) parent_.sync();
  return true;
}

/// If nothing is at the path, publishes the folder and returns true. Otherwise returns false;
/// `old_` is then the folder at the path, which is locked if the file system has locks. Since the
/// save began, another process may have removed or created that folder or, on a file system without
/// locks, replaced it.
bool FolderReplacement::rename_or_lock(bool durable) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    if (old_.valid() && is_still_named(parent_, name_, old_)) return false;
    if (rename_if_absent(durable)) return true;
    if (auto old = lock_folder(parent_, name_)) old_ = std::move(*old);
  }
  throw_in_use(parent_.display_of(name_), "folder");
}

bool FolderReplacement::publish_if_absent(bool durable) {
  finish_folder(durable);
  if (!rename_if_absent(durable)) return false;
  sibling_->release();
  old_.close();
  return true;
}

void FolderReplacement::publish(bool durable) {
  finish_folder(durable);
  std::optional<bool> exchanged;
  for (int attempt = 1; !exchanged && !rename_or_lock(durable); ++attempt) {
    exchanged = exchange_or_absent(parent_, sibling_->name(), name_, attempt);
  }
  std::string problem;
  if (exchanged == true) {
    // The sibling's name now belongs to the old tree, which is kept until the exchange is durable.
    sibling_->keep();
    if (durable) parent_.sync();
    problem = remove_old(sibling_->name());
  } else if (exchanged == false) {
    problem = replace_by_renames(durable);
  }
  sibling_->release();
  old_.close();
  if (!problem.empty()) warn(problem);
}

std::string FolderReplacement::replace_by_renames(bool durable) {
  const std::string aside = replaced_name(name_);
  const auto lease = os::Lease::try_acquire(parent_, lease_name(aside));
  if (!lease) throw_in_use(parent_.display_of(name_), "folder");
  // Remove the old folder of a writer that crashed after its second rename or could not remove it.
  remove_replaced(parent_, aside, name_);
  parent_.rename(name_, aside);
  try {
    // The two renames must become durable in this order.
    if (durable) parent_.sync();
    parent_.rename(sibling_->name(), name_);
  } catch (...) {
    // No other process has renamed the old folder back, because this process holds the lease of
    // `aside`.
    parent_.rename(aside, name_);
    throw;
  }
  sibling_->keep();
  if (durable) parent_.sync();
  return remove_old(aside);
}

/// Removes the old tree `name`. If it contains foreign files, renames it to
/// `<target>.kept-<number>` instead. Returns the text of a warning if the tree was kept or could
/// not be removed, else "".
std::string FolderReplacement::remove_old(const std::string& name) {
  const std::string display = parent_.display_of(name_);
  try {
    std::vector<std::string> foreign;
    if (find_foreign_) foreign = find_foreign_(os::Directory::open_at(parent_, name));
    if (foreign.empty()) {
      parent_.remove_tree(name);
      return {};
    }
    for (int number = 1; number < kMaxAttempts; ++number) {
      const std::string kept = name_ + ".kept-" + std::to_string(number);
      if (!parent_.rename_if_absent(name, kept)) continue;
      return display + ": saved; the previous version is kept as " + base::quote(kept) +
             ", because " + base::quote(foreign.front()) + " was added to it during the save";
    }
    return not_removed(display, name, "no unused name to keep it under");
  } catch (const Error& error) {
    return not_removed(display, name, error.what());
  }
}

bool recover_folder(const Path& path) {
  const Path target = os::resolve_link(path);
  const Path above = target.has_parent_path() ? target.parent_path() : Path(".");
  if (os::exists(target) || !os::exists(above)) return false;
  os::Parent parent = os::open_parent(target, false);
  return finish_replacement(parent.directory, parent.name);
}

void refuse_existing(const Path& path, bool overwrite) {
  if (overwrite || (!os::exists(path) && !recover_folder(path))) return;
  throw Error::io(EEXIST, path.string())
      .problem("it exists already")
      .expected("nothing there")
      .remedy("to replace it, use the option overwrite");
}

void replace_file(const Path& path, std::string_view bytes, bool durable) {
  FileReplacement replacement(path, bytes.size());
  replacement.file().write_at(0, std::as_bytes(std::span(bytes)));
  replacement.publish(durable);
}

}  // namespace tenfold::detail::formats
