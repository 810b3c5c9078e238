#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "os/fs/file.hpp"

namespace tenfold::os {

/// Repeats a system call while it fails with EINTR.
template <class Call>
auto retry_interrupted(const Call& call) noexcept(noexcept(call())) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

/// Throws `display: action: <strerror>`, as Error(file_not_found) for ENOENT, otherwise Error(io).
/// If the disk or quota is full and `descriptor` is valid, the message includes the free space of
/// its file system.
[[noreturn]] void throw_system_error(int system_errno, const std::string& display,
                                     std::string_view action, int descriptor = -1);

/// Implement the functions of File and Directory with the same names.
LockResult try_lock_exclusive(Descriptor& descriptor) noexcept;
LockResult try_lock_shared(Descriptor& descriptor) noexcept;
void unlock(Descriptor& descriptor) noexcept;

/// The size of a page of memory.
std::size_t page_bytes() noexcept;
/// The whole pages that contain `bytes`, as madvise, mincore and msync require.
std::span<std::byte> pages_of(std::span<const std::byte> bytes) noexcept;

FileInfo to_info(const struct stat& status) noexcept;

/// "a folder", "a symbolic link", "a FIFO", ...
std::string_view kind_name(mode_t mode) noexcept;

/// Throws Error(invalid_argument) unless `name` is one path component: not empty, not "." or "..",
/// without '/' and NUL.
void require_component(const std::string& name, const std::string& display);

/// Sets owner, group and permissions of `descriptor` to those of `like` (fchown, fchmod), as far
/// as this process may. Set-id bits are dropped if the owner or the group cannot be changed. If
/// the group cannot be changed, group and others get only the permissions that `like` gives to
/// both. Throws Error(io) if fstat or fchmod fails.
void apply_permissions(int descriptor, const FileInfo& like, const std::string& display);

}  // namespace tenfold::os
