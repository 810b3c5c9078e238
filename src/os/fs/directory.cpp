#include "os/fs/directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "os/fs/announced_change.hpp"
#include "os/system.hpp"

namespace tenfold::os {
namespace {

constexpr int kOpenFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

int open_entry(int parent, const std::string& name) {
  announce_read(name);
  return retry_interrupted([&] { return ::openat(parent, name.c_str(), kOpenFlags | O_NOFOLLOW); });
}

/// Adds the permissions of the owner (rwx) that the folder lacks. Does not follow a link, even if
/// another process replaces the folder with one.
void add_owners_permissions(int parent, const std::string& name) {
  const Descriptor folder(
      ::openat(parent, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status{};
  if (::fstat(folder.get(), &status) != 0) return;
  // fchmod refuses a descriptor with O_PATH.
  const std::string path = "/proc/self/fd/" + std::to_string(folder.get());
  static_cast<void>(::chmod(path.c_str(), (status.st_mode & 07777) | S_IRWXU));
}

/// True for the errors with which the kernel reports that the file system does not support a call.
bool is_missing_feature(int system_errno) noexcept {
  return system_errno == EINVAL || system_errno == ENOSYS || system_errno == EOPNOTSUPP;
}

/// True if `system_errno`, the error of renameat2(), means that the call or its flags are not
/// supported. The seccomp profiles of some containers refuse renameat2() with EPERM. To tell this
/// from missing permissions, calls it with flags for which the kernel reports EINVAL.
bool is_renameat2_missing(int system_errno) noexcept {
  if (system_errno != EPERM) return is_missing_feature(system_errno);
  return ::renameat2(-1, "", -1, "", ~0U) != 0 && errno == EPERM;
}

}  // namespace

Directory Directory::open(const Path& path) {
  announce_read(path.native());
  const int fd = retry_interrupted([&] { return ::open(path.c_str(), kOpenFlags); });
  if (fd < 0) throw_system_error(errno, path.string(), "cannot be opened as a folder");
  return Directory(fd, path.string());
}

Directory Directory::open_at(const Directory& parent, const std::string& name) {
  require_component(name, parent.display());
  std::string display = parent.display_of(name);
  const int fd = open_entry(parent.fd(), name);
  if (fd >= 0) return Directory(fd, std::move(display));
  const int system_errno = errno;
  struct stat status{};
  if ((system_errno == ENOTDIR || system_errno == ELOOP) &&
      ::fstatat(parent.fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
    throw base::corrupt(display).expected("a folder").found(kind_name(status.st_mode));
  }
  throw_system_error(system_errno, display, "cannot be opened as a folder");
}

Directory Directory::try_open_at(const Directory& parent, const std::string& name) {
  require_component(name, parent.display());
  const int fd = open_entry(parent.fd(), name);
  if (fd >= 0) return Directory(fd, parent.display_of(name));
  if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return Directory();
  throw_system_error(errno, parent.display_of(name), "cannot be opened as a folder");
}

Directory Directory::open_parent() const {
  const int fd = open_entry(this->fd(), "..");
  if (fd < 0) throw_system_error(errno, display_of(".."), "cannot be opened as a folder");
  return Directory(fd, display_of(".."));
}

std::string Directory::display_of(const std::string& name) const {
  if (display_.empty() || display_.back() == '/') return display_ + name;
  return display_ + "/" + name;
}

FileInfo Directory::info() const {
  struct stat status{};
  if (::fstat(fd(), &status) != 0) throw_system_error(errno, display_, "cannot be examined");
  return to_info(status);
}

bool Directory::is_at(const Path& path) const {
  announce_read(path.native());
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) return to_info(status).same_file(info());
  if (errno == ENOENT || errno == ENOTDIR) return false;
  throw_system_error(errno, path.string(), "cannot be examined");
}

std::optional<FileInfo> Directory::entry_info(const std::string& name) const {
  require_component(name, display_);
  announce_read(name);
  struct stat status{};
  if (::fstatat(fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return to_info(status);
  if (errno == ENOENT) return std::nullopt;
  throw_system_error(errno, display_of(name), "cannot be examined");
}

std::optional<std::string> Directory::read_link(const std::string& name) const {
  require_component(name, display_);
  std::string text(PATH_MAX, '\0');  // no link target is longer
  const ssize_t size = ::readlinkat(fd(), name.c_str(), text.data(), text.size());
  if (size >= 0) {
    text.resize(static_cast<std::size_t>(size));
    return text;
  }
  if (errno == ENOENT || errno == EINVAL) return std::nullopt;
  throw_system_error(errno, display_of(name), "cannot be read as a link");
}

std::vector<std::string> Directory::list(std::size_t most) const {
  // Open a new file description: descriptors that share a description also share the read position
  // of the folder.
  const int other = retry_interrupted([&] { return ::openat(fd(), ".", kOpenFlags); });
  if (other < 0) {
    if (errno == ENOENT) return {};  // the folder was removed
    throw_system_error(errno, display_, "cannot be listed");
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(other), ::closedir);
  if (!stream) {
    ::close(other);
    throw_system_error(errno, display_, "cannot be listed");
  }
  std::vector<std::string> names;
  errno = 0;
  while (names.size() < most) {
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
    errno = 0;
  }
  if (errno != 0) throw_system_error(errno, display_, "cannot be listed");
  return names;
}

Directory Directory::duplicate() const {
  const int other = ::fcntl(fd(), F_DUPFD_CLOEXEC, 0);
  if (other < 0) throw_system_error(errno, display_, "cannot be opened as a folder");
  return Directory(other, display_);
}

LockResult Directory::try_lock_exclusive() noexcept { return os::try_lock_exclusive(fd_); }
LockResult Directory::try_lock_shared() noexcept { return os::try_lock_shared(fd_); }
void Directory::unlock() noexcept { os::unlock(fd_); }

bool Directory::is_writable() const noexcept {
  return ::faccessat(fd(), ".", W_OK | X_OK, AT_EACCESS) == 0 || errno != EACCES;
}

void Directory::create_directory(const std::string& name, std::uint32_t mode) {
  require_component(name, display_);
  AnnouncedChange change([&] { return change_of(Change::Kind::create_directory, fd(), name); });
  if (::mkdirat(fd(), name.c_str(), mode) != 0) {
    throw_system_error(errno, display_of(name), "cannot be created", fd());
  }
  if (!change.observed()) return;
  const auto created = entry_info(name);
  change.done(created ? created->inode : 0);
}

void Directory::remove_file(const std::string& name) {
  require_component(name, display_);
  AnnouncedChange change([&] { return change_of(Change::Kind::remove_file, fd(), name); });
  if (::unlinkat(fd(), name.c_str(), 0) != 0) {
    throw_system_error(errno, display_of(name), "cannot be removed");
  }
  change.done();
}

void Directory::remove_tree(const std::string& name) {
  const auto found = entry_info(name);
  if (!found) return;
  if (!found->is_directory) {
    try {
      remove_file(name);
    } catch (const Error& error) {
      // file_not_found: another process removed it first.
      if (error.code() != ErrorCode::file_not_found) throw;
    }
    return;
  }
  {
    // Set the mode before opening the folder, because opening may need these permissions, too.
    constexpr std::uint32_t kOwnersAll = 0700;
    if ((found->mode & kOwnersAll) != kOwnersAll) add_owners_permissions(fd(), name);
    Directory folder = try_open_at(*this, name);
    if (!folder.valid()) return;
    for (const std::string& entry : folder.list()) folder.remove_tree(entry);
  }
  AnnouncedChange change([&] { return change_of(Change::Kind::remove_directory, fd(), name); });
  if (::unlinkat(fd(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    throw_system_error(errno, display_of(name), "cannot be removed");
  }
  change.done();
}

void Directory::rename(const std::string& from, const std::string& to) {
  require_component(from, display_);
  require_component(to, display_);
  AnnouncedChange change([&] { return change_of(Change::Kind::rename, fd(), from, to); });
  if (::renameat(fd(), from.c_str(), fd(), to.c_str()) != 0) {
    throw_system_error(errno, display_of(to), "cannot be replaced", fd());
  }
  change.done();
}

bool Directory::rename_if_absent(const std::string& from, const std::string& to) {
  require_component(from, display_);
  require_component(to, display_);
  AnnouncedChange change([&] { return change_of(Change::Kind::rename, fd(), from, to); });
  if (::renameat2(fd(), from.c_str(), fd(), to.c_str(), RENAME_NOREPLACE) != 0) {
    const int system_errno = errno;
    if (system_errno == EEXIST) return false;
    if (!is_renameat2_missing(system_errno)) {
      throw_system_error(system_errno, display_of(to), "cannot be created", fd());
    }
    // RENAME_NOREPLACE is not supported: check and rename in two steps. If another process creates
    // `to` between the steps, renameat() finds a folder with files or replaces `to`.
    if (entry_info(to)) return false;
    if (::renameat(fd(), from.c_str(), fd(), to.c_str()) != 0) {
      if (errno == EEXIST || errno == ENOTEMPTY) return false;  // a folder with files is there now
      throw_system_error(errno, display_of(to), "cannot be created", fd());
    }
  }
  change.done();
  return true;
}

bool Directory::exchange(const std::string& a, const std::string& b) {
  require_component(a, display_);
  require_component(b, display_);
  if (!exchange_supported()) return false;
  AnnouncedChange change([&] { return change_of(Change::Kind::exchange, fd(), a, b); });
  if (::renameat2(fd(), a.c_str(), fd(), b.c_str(), RENAME_EXCHANGE) != 0) {
    const int system_errno = errno;
    if (is_renameat2_missing(system_errno)) return false;
    throw_system_error(system_errno, display_of(b), "cannot be replaced", fd());
  }
  change.done();
  return true;
}

bool Directory::create_symlink(const std::string& text, const std::string& name) {
  require_component(name, display_);
  AnnouncedChange change([&] { return change_of(Change::Kind::symlink, fd(), name, text); });
  if (::symlinkat(text.c_str(), fd(), name.c_str()) != 0) {
    if (errno == EEXIST) return false;
    throw_system_error(errno, display_of(name), "cannot be created", fd());
  }
  if (!change.observed()) return true;
  const auto created = entry_info(name);
  change.done(created ? created->inode : 0);
  return true;
}

bool Directory::link_from(const Directory& from, const std::string& existing,
                          const std::string& name) {
  require_component(existing, from.display());
  require_component(name, display_);
  AnnouncedChange change([&] {
    Change c = change_of(Change::Kind::link, fd(), name, existing);
    c.other_directory = from.info().inode;
    return c;
  });
  if (::linkat(from.fd(), existing.c_str(), fd(), name.c_str(), 0) != 0) {
    if (is_missing_feature(errno) || errno == EPERM || errno == EXDEV || errno == EMLINK) {
      return false;
    }
    throw_system_error(errno, display_of(name), "cannot be linked", fd());
  }
  change.done();
  return true;
}

void Directory::sync() {
  AnnouncedChange change([&] { return change_of(Change::Kind::sync_directory, fd()); });
  // EINVAL: the file system does not support, or does not need, fsync of a folder.
  if (retry_interrupted([&] { return ::fsync(fd()); }) != 0 && errno != EINVAL) {
    throw_system_error(errno, display_, "cannot be synced to disk", fd());
  }
  change.done();
}

void Directory::copy_permissions(const FileInfo& like) {
  AnnouncedChange change([&] { return change_of(Change::Kind::permissions, fd()); });
  apply_permissions(fd(), like, display_);
  change.done();
}

Parent open_parent(const Path& path, bool create_missing) {
  const Path plain = without_trailing_slashes(path);
  Parent parent;
  parent.name = plain.filename().string();
  if (parent.name.empty() || parent.name == "." || parent.name == "..") {
    throw base::invalid_argument(path.string()).expected("a path that ends with a name");
  }
  Path above = plain.has_parent_path() ? plain.parent_path() : Path(".");
  while (above.filename() == "." && above.has_parent_path()) above = above.parent_path();
  // If `above` ends with "..", a missing folder before it is not created: open() below throws.
  if (create_missing && above.filename() != ".." && !os::exists(above)) {
    Parent next = open_parent(above, true);
    try {
      next.directory.create_directory(next.name);
    } catch (const Error& error) {
      if (error.system_errno() != EEXIST) throw;  // EEXIST: another process created it first
    }
    // Without this sync, a power failure could lose the new folder with everything saved in it.
    next.directory.sync();
  }
  parent.directory = Directory::open(above);
  return parent;
}

}  // namespace tenfold::os
