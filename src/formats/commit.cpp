#include "formats/commit.hpp"

#include <cerrno>
#include <optional>
#include <span>

#include <tenfold/error.hpp>

#include "base/checksum.hpp"
#include "os/background.hpp"

namespace tenfold {
namespace {

constexpr std::size_t kMaxNameBytes = 255;
constexpr int kMaxSiblings = 64;
/// How often a race with another writer is run again before it is reported.
constexpr int kMaxAttempts = 100;

/// `.<name>.tenfold-<suffix>`; a hash stands for a name that would become too long.
std::string hidden_name(const std::string& name, const std::string& suffix) {
  constexpr std::size_t kLongestSuffix = 3;
  const std::string marker = ".tenfold-";
  const bool fits = 1 + name.size() + marker.size() + kLongestSuffix <= kMaxNameBytes;
  const std::string stem = fits ? name : base::hex16(base::xxh3(std::as_bytes(std::span(name))));
  return "." + stem + marker + suffix;
}

std::string sibling_name(const std::string& name, int slot) {
  return hidden_name(name, std::to_string(slot));
}

std::string set_aside_name(const std::string& name) { return hidden_name(name, "old"); }

/// The name may have been given to another file between open and lock.
template <class Opened>
bool still_named(const os::Directory& parent, const std::string& name, const Opened& opened) {
  const auto now = parent.entry_info(name);
  return now && now->same_file(opened.info());
}

enum class Slot { free, taken };

/// Removes what a dead process left under `name`; `taken` if its writer lives, or if it is not ours
/// to remove.
Slot clear_slot(os::Directory& parent, const std::string& name) {
  const auto found = parent.entry_info(name);
  if (!found) return Slot::free;
  if (!found->is_regular && !found->is_directory) return Slot::taken;
  try {
    if (found->is_directory) {
      os::Directory stale = os::Directory::try_open_at(parent, name);
      if (!stale.valid() || !stale.try_lock_exclusive()) return Slot::taken;
      if (still_named(parent, name, stale)) parent.remove_tree(name);
    } else {
      os::File stale = os::File::try_open_read_at(parent, name);
      if (!stale.valid()) return Slot::free;
      if (!stale.try_lock_exclusive()) return Slot::taken;
      if (still_named(parent, name, stale)) parent.remove_file(name);
    }
  } catch (const Error& error) {
    const int code = error.system_errno();
    const bool not_ours = code == EACCES || code == EPERM || code == EBUSY || code == ENOTEMPTY;
    if (not_ours || error.code() == ErrorCode::corrupt) return Slot::taken;
    if (error.code() != ErrorCode::file_not_found) throw;
  }
  return Slot::free;
}

/// Takes the first free slot with `make(name)`, which creates, locks and returns an object or
/// nothing if another writer came first. Returns the sibling's name.
template <class Make>
std::string take_slot(os::Directory& parent, const std::string& name, const Make& make) {
  for (int slot = 0; slot < kMaxSiblings; ++slot) {
    const std::string sibling = sibling_name(name, slot);
    if (clear_slot(parent, sibling) == Slot::taken) continue;
    try {
      if (!make(sibling)) continue;
    } catch (const Error& error) {
      if (error.system_errno() != EEXIST) throw;
      continue;
    }
    return sibling;
  }
  throw Error::io(EBUSY, parent.display_of(name),
                  parent.display_of(name) + ": too many writers at once: expected at most " +
                      std::to_string(kMaxSiblings) + "; remove " + sibling_name(name, 0) +
                      " and its like if they belong to nobody");
}

/// What dead writers left beyond the slot that is in use.
void clear_later_slots(os::Directory& parent, const std::string& name, const std::string& taken) {
  int slot = 0;
  while (sibling_name(name, slot) != taken) ++slot;
  for (int later = slot + 1; later <= slot + 2; ++later) {
    static_cast<void>(clear_slot(parent, sibling_name(name, later)));
  }
}

[[noreturn]] void throw_in_use(const std::string& display) {
  throw Error::io(EBUSY, display,
                  display +
                      ": the folder is in use: expected nobody to hold it, found a handle opened "
                      "\"r+\" or a save under way; close it first");
}

/// The folder at `name`, locked exclusively; nothing if there is none.
std::optional<os::Directory> lock_folder(const os::Directory& parent, const std::string& name) {
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    const auto found = parent.entry_info(name);
    if (!found) return std::nullopt;
    const std::string display = parent.display_of(name);
    if (!found->is_directory) {
      throw Error::io(ENOTDIR, display,
                      display + ": expected a folder or nothing, found a file; remove it first");
    }
    os::Directory folder = os::Directory::try_open_at(parent, name);
    if (!folder.valid()) continue;
    if (!folder.try_lock_exclusive()) throw_in_use(display);
    if (still_named(parent, name, folder)) return folder;
  }
  throw_in_use(parent.display_of(name));
}

/// Puts `.<name>.tenfold-old` back if `name` is missing, removes it if the replacement got through.
/// True if it was put back.
bool settle_set_aside(os::Directory& parent, const std::string& name) {
  const std::string aside = set_aside_name(name);
  const auto found = parent.entry_info(aside);
  if (!found || !found->is_directory) return false;
  os::Directory old = os::Directory::try_open_at(parent, aside);
  // Locked: its writer lives, and is between its two renames or removing it.
  if (!old.valid() || !old.try_lock_exclusive() || !still_named(parent, aside, old)) return false;
  if (parent.rename_if_absent(aside, name)) return true;
  parent.remove_tree(aside);
  return false;
}

}  // namespace

/// To free less takes no longer than to start a thread.
constexpr std::uint64_t kSlowlyFreedBytes = std::uint64_t{4} << 20;

FileReplacement::FileReplacement(const Path& path) {
  // One old version at a time may still hold its space.
  os::await_background_closes();
  const Path target = os::resolve_link(path);
  os::Parent parent = os::open_parent(target, true);
  parent_ = std::move(parent.directory);
  name_ = std::move(parent.name);
  const std::string display = parent_.display_of(name_);
  if (const auto old = parent_.entry_info(name_)) {
    if (old->is_directory) {
      throw Error::io(EISDIR, display,
                      display + ": expected a file or nothing, found a folder; remove it first");
    }
    if (!old->is_regular) {
      throw Error(ErrorCode::invalid_argument,
                  display + ": expected a regular file or nothing, found a special file");
    }
  }
  sibling_ = take_slot(parent_, name_, [&](const std::string& sibling) {
    os::File file = os::File::create_at(parent_, sibling);
    // Another writer may have taken the file, not yet locked, for a dead one's.
    if (!file.try_lock_exclusive() || !still_named(parent_, sibling, file)) return false;
    file_ = std::move(file);
    return true;
  });
  has_sibling_ = true;
  try {
    clear_later_slots(parent_, name_, sibling_);
  } catch (const Error&) {
    // Litter of others, which the next save meets again, is no reason to fail this one.
  }
}

FileReplacement::~FileReplacement() {
  if (!has_sibling_) return;
  try {
    parent_.remove_file(sibling_);
  } catch (...) {
    // Left for the next save, which takes it over.
  }
}

void FileReplacement::publish(bool durable) {
  const auto old = parent_.entry_info(name_);
  if (old && old->is_regular) file_.copy_permissions(*old);
  if (durable) file_.sync();
  bool exchanged = false;
  if (old && old->is_regular) {
    // After the exchange the old file is called as the sibling was. It is locked before, so that no
    // other writer takes it for a dead one's and the name for its own.
    try {
      old_ = os::File::try_open_read_at(parent_, name_);
    } catch (const Error&) {
      // Not to be read by us: replaced by the rename below.
    }
    const bool locked =
        old_.valid() && old_.try_lock_exclusive() && still_named(parent_, name_, old_);
    exchanged = locked && parent_.exchange(sibling_, name_);
  }
  if (!exchanged) {
    parent_.rename(sibling_, name_);
    has_sibling_ = false;
  }
  if (durable) parent_.sync();
  if (exchanged) {
    remove_exchanged();
    has_sibling_ = false;
  }
  file_.close();
  if (old && old->size_bytes >= kSlowlyFreedBytes) os::close_in_background(std::move(old_));
  old_.close();
}

/// Removes what has the sibling's name after the exchange: the old file, which is ours because we
/// hold its lock, or the file of a writer that renamed it over the old one just before, which is
/// somebody's as long as it is locked. What stays is litter for the next save.
void FileReplacement::remove_exchanged() {
  const os::File there = os::File::try_open_read_at(parent_, sibling_);
  if (!there.valid()) return;
  if (there.info().same_file(old_.info())) return parent_.remove_file(sibling_);
  old_ = os::File::try_open_read_at(parent_, sibling_);
  if (old_.valid() && old_.try_lock_exclusive() && still_named(parent_, sibling_, old_)) {
    parent_.remove_file(sibling_);
  }
}

FolderReplacement::FolderReplacement(const Path& path) {
  const Path target = os::resolve_link(path);
  os::Parent parent = os::open_parent(target, true);
  parent_ = std::move(parent.directory);
  name_ = std::move(parent.name);
  settle_set_aside(parent_, name_);
  if (auto old = lock_folder(parent_, name_)) old_ = std::move(*old);
  sibling_ = take_slot(parent_, name_, [&](const std::string& sibling) {
    parent_.create_directory(sibling);
    os::Directory folder = os::Directory::try_open_at(parent_, sibling);
    if (!folder.valid() || !folder.try_lock_exclusive()) return false;
    if (!still_named(parent_, sibling, folder)) return false;
    folder_ = std::move(folder);
    return true;
  });
  has_sibling_ = true;
  try {
    clear_later_slots(parent_, name_, sibling_);
  } catch (const Error&) {
    // As for files.
  }
}

FolderReplacement::~FolderReplacement() {
  if (!has_sibling_) return;
  try {
    parent_.remove_tree(sibling_);
  } catch (...) {
    // Left for the next save, which takes it over.
  }
}

void FolderReplacement::publish(bool durable) {
  if (old_.valid()) folder_.copy_permissions(old_.info());
  if (durable) folder_.sync();
  if (!old_.valid()) {
    if (parent_.rename_if_absent(sibling_, name_)) {
      has_sibling_ = false;
      if (durable) parent_.sync();
      folder_.unlock();
      return;
    }
    // Someone made one meanwhile.
    auto old = lock_folder(parent_, name_);
    if (!old) throw_in_use(parent_.display_of(name_));
    old_ = std::move(*old);
  }
  if (parent_.exchange(sibling_, name_)) {
    if (durable) parent_.sync();
    parent_.remove_tree(sibling_);
    has_sibling_ = false;
  } else {
    step_aside_and_move_in(durable);
  }
  folder_.unlock();
  old_.close();
}

void FolderReplacement::step_aside_and_move_in(bool durable) {
  const std::string aside = set_aside_name(name_);
  parent_.rename(name_, aside);
  try {
    // The two renames must reach the device in this order.
    if (durable) parent_.sync();
    parent_.rename(sibling_, name_);
  } catch (...) {
    // The lock is held, so nobody else put it back.
    parent_.rename(aside, name_);
    throw;
  }
  // What is left to remove is the old folder, now under this name.
  sibling_ = aside;
  if (durable) parent_.sync();
  parent_.remove_tree(sibling_);
  has_sibling_ = false;
}

bool recover_folder(const Path& path) {
  const Path target = os::resolve_link(path);
  const Path above = target.has_parent_path() ? target.parent_path() : Path(".");
  if (os::exists(target) || !os::exists(above)) return false;
  os::Parent parent = os::open_parent(target, false);
  return settle_set_aside(parent.directory, parent.name);
}

}  // namespace tenfold
