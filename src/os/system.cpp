#include "os/system.hpp"

#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "os/fs/announced_change.hpp"
#include "os/fs/free_space.hpp"

namespace tenfold::os {

void throw_system_error(int system_errno, const std::string& display, std::string_view action,
                        int descriptor) {
  const Error error = Error::io(system_errno, display, std::string(action));
  if (system_errno == ENOENT) {
    throw base::file_not_found(display).problem(error.message());
  }
  if ((system_errno != ENOSPC && system_errno != EDQUOT) || descriptor < 0) throw error;
  const FreeSpace space = free_space(descriptor);
  const std::string files =
      space.free_files ? " and " + std::to_string(*space.free_files) + " files" : "";
  throw Error(error)
      .problem(error.message())
      .found(base::human_bytes(space.free_bytes), files, " free");
}

namespace {

LockResult try_lock(int descriptor, int operation) noexcept {
  ChangeObserver* const observer = change_observer();
  int system_errno = observer == nullptr ? 0 : observer->lock_errno();
  if (system_errno == 0) {
    const int result =
        retry_interrupted([&]() noexcept { return ::flock(descriptor, operation | LOCK_NB); });
    if (result == 0) return LockResult::acquired;
    system_errno = errno;
  }
  return system_errno == EWOULDBLOCK ? LockResult::held : LockResult::unsupported;
}

}  // namespace

LockResult try_lock_exclusive(Descriptor& descriptor) noexcept {
  const LockResult result = try_lock(descriptor.get(), LOCK_EX);
  descriptor.set_lock_owned(result == LockResult::acquired);
  return result;
}

LockResult try_lock_shared(Descriptor& descriptor) noexcept {
  return try_lock(descriptor.get(), LOCK_SH);
}

void unlock(Descriptor& descriptor) noexcept {
  ::flock(descriptor.get(), LOCK_UN);
  descriptor.set_lock_owned(false);
}

namespace {

/// Initialised at load time: if another thread forked during the initialisation of a local static,
/// the child could hang.
const auto kSystemPageBytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

}  // namespace

std::size_t page_bytes() noexcept { return kSystemPageBytes; }

std::span<std::byte> pages_of(std::span<const std::byte> bytes) noexcept {
  const std::size_t page = page_bytes();
  const std::size_t before = reinterpret_cast<std::uintptr_t>(bytes.data()) % page;
  return {const_cast<std::byte*>(bytes.data()) - before,
          (before + bytes.size() + page - 1) / page * page};
}

FileInfo to_info(const struct stat& status) noexcept {
  FileInfo info;
  info.device = status.st_dev;
  info.inode = status.st_ino;
  info.num_links = status.st_nlink;
  info.size_bytes = static_cast<std::uint64_t>(status.st_size);
  info.mode = status.st_mode & 07777;
  info.user = status.st_uid;
  info.group = status.st_gid;
  info.is_regular = S_ISREG(status.st_mode);
  info.is_directory = S_ISDIR(status.st_mode);
  info.is_symlink = S_ISLNK(status.st_mode);
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  // A file may have a time after 2262, which nanoseconds in an int64 cannot represent.
  constexpr std::int64_t kMaxSeconds = std::numeric_limits<std::int64_t>::max() / kNanoseconds - 1;
  const std::int64_t seconds =
      std::clamp(std::int64_t{status.st_mtim.tv_sec}, -kMaxSeconds, kMaxSeconds);
  info.modified_ns = seconds * kNanoseconds + status.st_mtim.tv_nsec;
  return info;
}

std::string_view kind_name(mode_t mode) noexcept {
  if (S_ISREG(mode)) return "a regular file";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

void require_component(const std::string& name, const std::string& display) {
  const bool plain = !name.empty() && name != "." && name != ".." &&
                     name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (plain) return;
  throw base::invalid_argument(display)
      .part("entry ", base::quote(name))
      .expected("the name of one file or folder in this folder");
}

void apply_permissions(int descriptor, const FileInfo& like, const std::string& display) {
  struct stat now{};
  if (::fstat(descriptor, &now) != 0) throw_system_error(errno, display, "cannot be examined");
  std::uint32_t mode = like.mode;
  if (now.st_uid != like.user || now.st_gid != like.group) {
    // Set group and user separately: an unprivileged owner may change the group to one of its own
    // groups, but not the user.
    const bool group_given = ::fchown(descriptor, static_cast<uid_t>(-1), like.group) == 0;
    const bool user_given = ::fchown(descriptor, like.user, static_cast<gid_t>(-1)) == 0;
    if (!group_given || !user_given) mode &= ~static_cast<std::uint32_t>(S_ISUID | S_ISGID);
    // If the group cannot be set, group and others get only the permissions that both have in
    // `like`, so that neither the old nor the new group gains access.
    if (!group_given) {
      mode &= ~static_cast<std::uint32_t>(S_IRWXG) | (mode & S_IRWXO) << 3U;
      mode &= ~static_cast<std::uint32_t>(S_IRWXO) | (mode & S_IRWXG) >> 3U;
    }
  }
  if ((now.st_mode & 07777) == mode && now.st_uid == like.user && now.st_gid == like.group) return;
  if (::fchmod(descriptor, mode) != 0) {
    throw_system_error(errno, display, "permissions cannot be set");
  }
}

}  // namespace tenfold::os
