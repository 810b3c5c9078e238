#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>

#include "os/fs/file.hpp"

namespace tenfold::os {

/// Calls a system call again while a signal interrupts it.
template <class Call>
auto retry_interrupted(const Call& call) noexcept(noexcept(call())) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

/// `display: action: <the system's words>`, as Error(file_not_found) for ENOENT, otherwise
/// Error(io). A full disk names the space that is free, if `descriptor` lies on that file system.
[[noreturn]] void throw_system_error(int system_errno, const std::string& display,
                                     std::string_view action, int descriptor = -1);

/// As LockResult File::try_lock_exclusive() and so on say.
LockResult try_lock_exclusive(Descriptor& descriptor) noexcept;
LockResult try_lock_shared(Descriptor& descriptor) noexcept;
void unlock(Descriptor& descriptor) noexcept;

/// The size of a page of memory.
std::size_t page_bytes() noexcept;

FileInfo to_info(const struct stat& status) noexcept;

/// "a directory", "a symbolic link", "a FIFO", ...
std::string_view kind_name(mode_t mode) noexcept;

/// Throws Error(invalid_argument) unless `name` is one component of a path: not empty, ".", "..",
/// and without '/' and NUL.
void require_component(const std::string& name, const std::string& display);

/// fchown and fchmod of `descriptor` to owner and permission bits of `like`, as far as this process
/// may: where the owner cannot be given away, set-id bits are dropped.
void apply_permissions(int descriptor, const FileInfo& like, const std::string& display);

}  // namespace tenfold::os
