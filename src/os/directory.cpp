#include "os/directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include <tenfold/error.hpp>

#include "os/seam.hpp"
#include "os/system.hpp"

namespace tenfold::os {
namespace {

constexpr int kOpenFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

int open_entry(int parent, const std::string& name) {
  return retry_interrupted([&] { return ::openat(parent, name.c_str(), kOpenFlags | O_NOFOLLOW); });
}

Change change_in(Change::Kind kind, int fd, std::string name = {}, std::string other = {}) {
  Change change{};
  change.kind = kind;
  change.descriptor = fd;
  change.name = std::move(name);
  change.other = std::move(other);
  struct stat status{};
  if (::fstat(fd, &status) == 0) {
    change.device = status.st_dev;
    change.inode = status.st_ino;
  }
  return change;
}

bool try_lock(int fd, int operation) noexcept {
  const int result = retry_interrupted([&]() noexcept { return ::flock(fd, operation | LOCK_NB); });
  return result == 0 || errno != EWOULDBLOCK;  // see file.cpp
}

/// True for the errors by which a file system says that it does not have such a call.
bool is_missing_feature(int system_errno) noexcept {
  return system_errno == EINVAL || system_errno == ENOSYS || system_errno == EOPNOTSUPP;
}

}  // namespace

Directory::Directory(Directory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), display_(std::move(other.display_)) {}

Directory& Directory::operator=(Directory&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
    display_ = std::move(other.display_);
  }
  return *this;
}

Directory::~Directory() { close(); }

void Directory::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Directory Directory::open(const Path& path) {
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
    throw Error(ErrorCode::corrupt,
                display + ": expected a folder, found " + std::string(kind_name(status.st_mode)));
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

std::string Directory::display_of(const std::string& name) const {
  if (display_.empty() || display_.back() == '/') return display_ + name;
  return display_ + "/" + name;
}

FileInfo Directory::info() const {
  struct stat status{};
  if (::fstat(fd_, &status) != 0) throw_system_error(errno, display_, "cannot be examined");
  return to_info(status);
}

std::optional<FileInfo> Directory::entry_info(const std::string& name) const {
  require_component(name, display_);
  struct stat status{};
  if (::fstatat(fd_, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) return to_info(status);
  if (errno == ENOENT) return std::nullopt;
  throw_system_error(errno, display_of(name), "cannot be examined");
}

std::vector<std::string> Directory::list() const {
  // A descriptor of its own: the position in a folder belongs to the open file description.
  const int fd = retry_interrupted([&] { return ::openat(fd_, ".", kOpenFlags); });
  if (fd < 0) {
    if (errno == ENOENT) return {};  // the folder was removed
    throw_system_error(errno, display_, "cannot be listed");
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), ::closedir);
  if (!stream) {
    ::close(fd);
    throw_system_error(errno, display_, "cannot be listed");
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
    errno = 0;
  }
  if (errno != 0) throw_system_error(errno, display_, "cannot be listed");
  return names;
}

Directory Directory::duplicate() const {
  const int fd = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) throw_system_error(errno, display_, "cannot be opened as a folder");
  return Directory(fd, display_);
}

bool Directory::try_lock_exclusive() noexcept { return try_lock(fd_, LOCK_EX); }
bool Directory::try_lock_shared() noexcept { return try_lock(fd_, LOCK_SH); }
void Directory::unlock() noexcept { ::flock(fd_, LOCK_UN); }

void Directory::create_directory(const std::string& name, std::uint32_t mode) {
  require_component(name, display_);
  AnnouncedChange change([&] { return change_in(Change::Kind::create_directory, fd_, name); });
  if (::mkdirat(fd_, name.c_str(), mode) != 0) {
    throw_system_error(errno, display_of(name), "cannot be created", fd_);
  }
  if (!change.observed()) return;
  const auto created = entry_info(name);
  change.done(created ? created->inode : 0);
}

void Directory::remove_file(const std::string& name) {
  require_component(name, display_);
  AnnouncedChange change([&] { return change_in(Change::Kind::remove_file, fd_, name); });
  if (::unlinkat(fd_, name.c_str(), 0) != 0) {
    throw_system_error(errno, display_of(name), "cannot be removed");
  }
  change.done();
}

void Directory::remove_tree(const std::string& name) {
  const auto found = entry_info(name);
  if (!found) return;
  if (!found->is_directory) return remove_file(name);
  {
    Directory folder = try_open_at(*this, name);
    if (!folder.valid()) return;
    for (const std::string& entry : folder.list()) folder.remove_tree(entry);
  }
  AnnouncedChange change([&] { return change_in(Change::Kind::remove_directory, fd_, name); });
  if (::unlinkat(fd_, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
    throw_system_error(errno, display_of(name), "cannot be removed");
  }
  change.done();
}

void Directory::rename(const std::string& from, const std::string& to) {
  require_component(from, display_);
  require_component(to, display_);
  AnnouncedChange change([&] { return change_in(Change::Kind::rename, fd_, from, to); });
  if (::renameat(fd_, from.c_str(), fd_, to.c_str()) != 0) {
    throw_system_error(errno, display_of(to), "cannot be replaced", fd_);
  }
  change.done();
}

bool Directory::rename_if_absent(const std::string& from, const std::string& to) {
  require_component(from, display_);
  require_component(to, display_);
  AnnouncedChange change([&] { return change_in(Change::Kind::rename, fd_, from, to); });
  if (::renameat2(fd_, from.c_str(), fd_, to.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST) return false;
    if (!is_missing_feature(errno)) {
      throw_system_error(errno, display_of(to), "cannot be created", fd_);
    }
    // Two steps where one cannot be had; the caller's lock keeps other writers away.
    if (entry_info(to)) return false;
    if (::renameat(fd_, from.c_str(), fd_, to.c_str()) != 0) {
      throw_system_error(errno, display_of(to), "cannot be created", fd_);
    }
  }
  change.done();
  return true;
}

bool Directory::exchange(const std::string& a, const std::string& b) {
  require_component(a, display_);
  require_component(b, display_);
  if (!exchange_supported()) return false;
  AnnouncedChange change([&] { return change_in(Change::Kind::exchange, fd_, a, b); });
  if (::renameat2(fd_, a.c_str(), fd_, b.c_str(), RENAME_EXCHANGE) != 0) {
    if (is_missing_feature(errno)) return false;
    throw_system_error(errno, display_of(b), "cannot be replaced", fd_);
  }
  change.done();
  return true;
}

bool Directory::link_from(const Directory& from, const std::string& existing,
                          const std::string& name) {
  require_component(existing, from.display());
  require_component(name, display_);
  AnnouncedChange change([&] {
    Change c = change_in(Change::Kind::link, fd_, name, existing);
    c.other_directory = from.info().inode;
    return c;
  });
  if (::linkat(from.fd(), existing.c_str(), fd_, name.c_str(), 0) != 0) {
    if (is_missing_feature(errno) || errno == EPERM || errno == EXDEV || errno == EMLINK) {
      return false;
    }
    throw_system_error(errno, display_of(name), "cannot be linked", fd_);
  }
  change.done();
  return true;
}

void Directory::sync() {
  AnnouncedChange change([&] { return change_in(Change::Kind::sync_directory, fd_); });
  // EINVAL: a file system whose folders need no sync, or know none.
  if (retry_interrupted([&] { return ::fsync(fd_); }) != 0 && errno != EINVAL) {
    throw_system_error(errno, display_, "cannot be written to the device", fd_);
  }
  change.done();
}

void Directory::copy_permissions(const FileInfo& like) {
  AnnouncedChange change([&] { return change_in(Change::Kind::permissions, fd_); });
  apply_permissions(fd_, like, display_);
  change.done();
}

Parent open_parent(const Path& path, bool create_missing) {
  Path plain = path;
  while (!plain.has_filename() && plain.has_relative_path()) plain = plain.parent_path();
  Parent parent;
  parent.name = plain.filename().string();
  if (parent.name.empty() || parent.name == "." || parent.name == "..") {
    throw Error(ErrorCode::invalid_argument,
                path.string() + ": expected a path that ends with a name");
  }
  const Path above = plain.has_parent_path() ? plain.parent_path() : Path(".");
  if (create_missing && !os::exists(above)) {
    Parent next = open_parent(above, true);
    next.directory.create_directory(next.name);
    // Without this a power loss could take the new folder away with all that is saved in it.
    next.directory.sync();
  }
  parent.directory = Directory::open(above);
  return parent;
}

}  // namespace tenfold::os
