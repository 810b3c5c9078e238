#include "os/fs/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/checked.hpp"
#include "base/fail.hpp"
#include "os/fs/announced_change.hpp"
#include "os/fs/directory.hpp"
#include "os/system.hpp"

namespace tenfold::os {
namespace {

constexpr std::uint64_t kMaxOffset = std::numeric_limits<std::int64_t>::max();
// O_NONBLOCK: without it, opening a FIFO would block until another process opens its other end.
// FIFOs are refused after opening.
constexpr int kFileFlags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

[[noreturn]] void throw_not_regular(const std::string& display, std::string_view found) {
  throw base::corrupt(display).expected("a regular file").found(found);
}

struct OpenedFile {
  int fd = -1;
  FileInfo info;
};

/// Opens a file, or returns -1 with errno set. Throws Error(corrupt) for anything but a regular
/// file.
OpenedFile open_regular(int directory, const std::string& name, int flags,
                        const std::string& display) {
  announce_read(name);
  OpenedFile opened;
  opened.fd =
      retry_interrupted([&] { return ::openat(directory, name.c_str(), flags | kFileFlags); });
  if (opened.fd < 0) {
    const int system_errno = errno;
    if (system_errno == ELOOP && (flags & O_NOFOLLOW) != 0) {
      throw_not_regular(display, "a symbolic link");
    }
    if (system_errno == EISDIR) throw_not_regular(display, "a folder");
    if (system_errno == ENXIO) throw_not_regular(display, "a socket or device");
    errno = system_errno;
    return opened;
  }
  struct stat status{};
  if (::fstat(opened.fd, &status) != 0) {
    const int system_errno = errno;
    ::close(opened.fd);
    throw_system_error(system_errno, display, "cannot be examined");
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(opened.fd);
    throw_not_regular(display, kind_name(status.st_mode));
  }
  opened.info = to_info(status);
  return opened;
}

}  // namespace

FileInfo file_info(const Path& path) {
  announce_read(path.native());
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    throw_system_error(errno, path.string(), "cannot be examined");
  }
  return to_info(status);
}

bool exists(const Path& path) {
  announce_read(path.native());
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  throw_system_error(errno, path.string(), "cannot be examined");
}

Path without_trailing_slashes(Path path) {
  while (!path.has_filename() && path.has_relative_path()) path = path.parent_path();
  return path;
}

Path resolve_link(const Path& path) {
  Path resolved = without_trailing_slashes(path);
  for (int depth = 0; depth < 40; ++depth) {
    std::error_code failure;
    const Path target = std::filesystem::read_symlink(resolved, failure);
    if (failure) {
      const int system_errno = failure.value();
      const bool is_no_link = system_errno == EINVAL;
      if (is_no_link || system_errno == ENOENT || system_errno == ENOTDIR) return resolved;
      // Report the error. If it were ignored, a save could replace the link instead of its target.
      throw_system_error(system_errno, path.string(), "cannot be examined");
    }
    resolved =
        without_trailing_slashes(target.is_absolute() ? target : resolved.parent_path() / target);
  }
  throw_system_error(ELOOP, path.string(), "cannot be resolved");
}

Path absolute(const Path& path) {
  std::error_code failure;
  Path found = std::filesystem::absolute(path, failure);
  if (failure) throw Error::io(failure.value(), path.string(), "has no absolute path");
  return found;
}

Path canonical(const Path& path) {
  std::error_code failure;
  Path found = std::filesystem::weakly_canonical(os::absolute(path), failure);
  if (failure) throw Error::io(failure.value(), path.string(), "cannot be resolved");
  return found;
}

Path path_within(const Path& folder, const Path& path) {
  // os:: is required, because argument-dependent lookup also finds std::filesystem::canonical.
  const Path inner =
      os::canonical(resolve_link(path)).lexically_relative(os::canonical(resolve_link(folder)));
  return inner.empty() || *inner.begin() == ".." ? Path() : inner;
}

File File::open_read(const Path& path) {
  const OpenedFile opened = open_regular(AT_FDCWD, path.native(), O_RDONLY, path.string());
  if (opened.fd < 0) throw_system_error(errno, path.string(), "cannot be opened");
  return File(opened.fd, path.string(), opened.info);
}

File File::open_read_write(const Path& path) {
  const OpenedFile opened = open_regular(AT_FDCWD, path.native(), O_RDWR, path.string());
  if (opened.fd < 0) throw_system_error(errno, path.string(), "cannot be opened for writing");
  return File(opened.fd, path.string(), opened.info);
}

File File::open_read_at(const Directory& directory, const std::string& name) {
  File file = try_open_read_at(directory, name);
  if (!file.valid()) throw_system_error(ENOENT, directory.display_of(name), "cannot be opened");
  return file;
}

File File::open_read_write_at(const Directory& directory, const std::string& name) {
  File file = try_open_read_write_at(directory, name);
  if (file.valid()) return file;
  throw_system_error(ENOENT, directory.display_of(name), "cannot be opened for writing");
}

File File::try_open_read_at(const Directory& directory, const std::string& name) {
  require_component(name, directory.display());
  std::string display = directory.display_of(name);
  const OpenedFile opened = open_regular(directory.fd(), name, O_RDONLY | O_NOFOLLOW, display);
  if (opened.fd >= 0) return File(opened.fd, std::move(display), opened.info);
  if (errno == ENOENT) return File();
  throw_system_error(errno, display, "cannot be opened");
}

File File::try_open_read_write_at(const Directory& directory, const std::string& name) {
  require_component(name, directory.display());
  std::string display = directory.display_of(name);
  const OpenedFile opened = open_regular(directory.fd(), name, O_RDWR | O_NOFOLLOW, display);
  if (opened.fd >= 0) return File(opened.fd, std::move(display), opened.info);
  if (errno == ENOENT) return File();
  throw_system_error(errno, display, "cannot be opened for writing");
}

File File::in_memory(std::string display) {
  const int fd = ::memfd_create("tenfold", MFD_CLOEXEC);
  if (fd < 0) throw_system_error(errno, display, "cannot be created in memory", -1);
  return {fd, std::move(display)};
}

File File::create_at(const Directory& directory, const std::string& name, std::uint32_t mode) {
  require_component(name, directory.display());
  std::string display = directory.display_of(name);
  AnnouncedChange change([&] {
    Change c = change_of(Change::Kind::create_file, directory.fd());
    c.name = name;
    return c;
  });
  const int fd = retry_interrupted([&] {
    return ::openat(directory.fd(), name.c_str(),
                    O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  });
  if (fd < 0) throw_system_error(errno, display, "cannot be created", directory.fd());
  File file(fd, std::move(display));
  if (change.observed()) change.done(file.info().inode);
  return file;
}

FileInfo File::info() const {
  struct stat status{};
  if (::fstat(fd(), &status) != 0) throw_system_error(errno, display_, "cannot be examined");
  return to_info(status);
}

void File::read_at(std::uint64_t offset_bytes, std::span<std::byte> into) const {
  const std::size_t found = read_some_at(offset_bytes, into);
  if (found == into.size()) return;
  const auto end = base::checked_add(offset_bytes, into.size());
  throw base::corrupt(display_)
      .problem("the file is too short")
      .expected("at least ", (end ? std::to_string(*end) : "2^64"), " bytes")
      .found(size_bytes())
      .remedy("it may be truncated");
}

std::size_t File::read_some_at(std::uint64_t offset_bytes, std::span<std::byte> into) const {
  if (offset_bytes > kMaxOffset) return 0;
  // pread refuses a range that ends after the largest offset.
  const auto size =
      static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), kMaxOffset - offset_bytes));
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = retry_interrupted([&] {
      return ::pread(fd(), into.data() + done, size - done,
                     static_cast<off_t>(offset_bytes + done));
    });
    if (count < 0) throw_system_error(errno, display_, "cannot be read");
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void File::write_at(std::uint64_t offset_bytes, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (!base::range_fits(offset_bytes, bytes.size(), kMaxOffset)) {
    throw_system_error(EFBIG, display_, "cannot be written");
  }
  AnnouncedChange change([&] {
    Change c = change_of(Change::Kind::write, fd());
    c.offset_bytes = offset_bytes;
    c.bytes = bytes;
    return c;
  });
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = retry_interrupted([&] {
      return ::pwrite(fd(), bytes.data() + done, bytes.size() - done,
                      static_cast<off_t>(offset_bytes + done));
    });
    if (count <= 0) {
      throw_system_error(count < 0 ? errno : EIO, display_, "cannot be written", fd());
    }
    done += static_cast<std::size_t>(count);
  }
  change.done();
}

void File::write_at(std::uint64_t offset_bytes, std::span<const std::span<const std::byte>> parts) {
  std::size_t size_bytes = 0;
  for (const auto& part : parts) size_bytes += part.size();
  if (change_observer() != nullptr || parts.size() > kMaxParts) {
    std::vector<std::byte> joined;
    joined.reserve(size_bytes);
    for (const auto& part : parts) joined.insert(joined.end(), part.begin(), part.end());
    return write_at(offset_bytes, joined);
  }
  std::array<iovec, kMaxParts> vectors;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    vectors[i] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
  }
  std::size_t done = 0;
  if (base::range_fits(offset_bytes, size_bytes, kMaxOffset)) {
    const ssize_t count = retry_interrupted([&] {
      return ::pwritev(fd(), vectors.data(), static_cast<int>(parts.size()),
                       static_cast<off_t>(offset_bytes));
    });
    if (count > 0) done = static_cast<std::size_t>(count);
  }
  if (done == size_bytes) return;
  // After a short or failed pwritev, write the rest part by part, which also reports the error.
  std::uint64_t begin = offset_bytes;
  for (const auto& part : parts) {
    const std::size_t skipped = std::min(done, part.size());
    write_at(begin + skipped, part.subspan(skipped));
    done -= skipped;
    begin += part.size();
  }
}

void File::truncate(std::uint64_t size_bytes) {
  if (size_bytes > kMaxOffset) throw_system_error(EFBIG, display_, "cannot be resized");
  AnnouncedChange change([&] {
    Change c = change_of(Change::Kind::truncate, fd());
    c.offset_bytes = size_bytes;
    return c;
  });
  if (retry_interrupted([&] { return ::ftruncate(fd(), static_cast<off_t>(size_bytes)); }) != 0) {
    throw_system_error(errno, display_, "cannot be resized", fd());
  }
  change.done();
}

bool File::reserve() {
  const std::uint64_t size = size_bytes();
  if (size == 0) return true;
  AnnouncedChange change([&] {
    Change c = change_of(Change::Kind::truncate, fd());
    c.offset_bytes = size;
    return c;
  });
  // In steps, because tmpfs of older kernels undoes an interrupted fallocate: with a periodic
  // signal, one call for a whole large file would be retried forever.
  constexpr std::uint64_t kReserveStepBytes = std::uint64_t{256} << 20;
  bool reserved = true;
  for (std::uint64_t begin = 0; reserved && begin < size; begin += kReserveStepBytes) {
    const auto offset = static_cast<off_t>(begin);
    const auto length = static_cast<off_t>(std::min(kReserveStepBytes, size - begin));
    reserved = retry_interrupted([&] { return ::fallocate(fd(), 0, offset, length); }) == 0;
  }
  if (!reserved && errno != EOPNOTSUPP && errno != ENOSYS) {
    throw_system_error(errno, display_, "its space cannot be reserved", fd());
  }
  change.done();
  return reserved;
}

bool File::insert_hole(std::uint64_t offset_bytes, std::uint64_t size_bytes) {
  if (!insert_supported() || !base::range_fits(offset_bytes, size_bytes, kMaxOffset)) return false;
  AnnouncedChange change([&] {
    Change c = change_of(Change::Kind::insert, fd());
    c.offset_bytes = offset_bytes;
    c.size_bytes = size_bytes;
    return c;
  });
  const bool inserted =
      retry_interrupted([&] {
        return ::fallocate(fd(), FALLOC_FL_INSERT_RANGE, static_cast<off_t>(offset_bytes),
                           static_cast<off_t>(size_bytes));
      }) == 0;
  if (inserted) {
    change.done();
  } else if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) {
    throw_system_error(errno, display_, "cannot be extended", fd());
  }
  return inserted;
}

std::uint64_t File::block_bytes() const {
  struct stat status{};
  if (::fstat(fd(), &status) != 0) throw_system_error(errno, display_, "cannot be examined");
  return static_cast<std::uint64_t>(status.st_blksize);
}

void File::sync() {
  AnnouncedChange change([&] { return change_of(Change::Kind::sync_file, fd()); });
  if (retry_interrupted([&] { return ::fdatasync(fd()); }) != 0) {
    throw_system_error(errno, display_, "cannot be synced to disk", fd());
  }
  change.done();
}

void File::start_writeback() { ::sync_file_range(fd(), 0, 0, SYNC_FILE_RANGE_WRITE); }

void File::copy_permissions(const FileInfo& like) {
  AnnouncedChange change([&] { return change_of(Change::Kind::permissions, fd()); });
  apply_permissions(fd(), like, display_);
  change.done();
}

std::string File::read_all(std::uint64_t limit_bytes) const {
  const std::uint64_t size = size_bytes();
  if (size > limit_bytes) {
    throw base::corrupt(display_)
        .problem("the file is too large")
        .expected("at most ", limit_bytes, " bytes")
        .found(size);
  }
  std::string text(static_cast<std::size_t>(size), '\0');
  read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

LockResult File::try_lock_exclusive() noexcept { return os::try_lock_exclusive(fd_); }
LockResult File::try_lock_shared() noexcept { return os::try_lock_shared(fd_); }
void File::unlock() noexcept { os::unlock(fd_); }

void File::close_written() {
  ChangeObserver* const observer = change_observer();
  int system_errno = observer == nullptr ? 0 : observer->close_errno();
  // Do not retry after EINTR: Linux has already closed the descriptor.
  if (::close(fd_.release()) != 0 && errno != EINTR) system_errno = errno;
  if (system_errno != 0) throw_system_error(system_errno, display_, "cannot be written");
}

}  // namespace tenfold::os
