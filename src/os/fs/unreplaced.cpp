#include "os/fs/unreplaced.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <string>

#include "base/fail.hpp"
#include "os/system.hpp"

namespace tenfold::os {
namespace {

bool is_absence(int system_errno) noexcept {
  return system_errno == ENOENT || system_errno == ENOTDIR;
}

}  // namespace

std::optional<FileIdentity> identity_of(const Path& path) {
  struct statx status{};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_BTIME, &status) != 0) {
    return std::nullopt;
  }
  FileIdentity identity;
  identity.boot = boot_id();
  identity.device = makedev(status.stx_dev_major, status.stx_dev_minor);
  identity.inode = status.stx_ino;
  constexpr std::int64_t kNanoseconds = 1'000'000'000;
  if ((status.stx_mask & STATX_BTIME) != 0) {
    identity.born_ns = status.stx_btime.tv_sec * kNanoseconds + status.stx_btime.tv_nsec;
  }
  return identity;
}

NamedEntry::NamedEntry(const Path& path) : path_(path) {
  // O_PATH needs no permission on the entry, and does not block on a FIFO.
  fd_ = Descriptor(retry_interrupted([&] { return ::open(path.c_str(), O_PATH | O_CLOEXEC); }));
  struct stat status{};
  if (!fd_.valid()) {
    is_known_ = is_absence(errno);
  } else if (::fstat(fd_.get(), &status) == 0) {
    info_ = to_info(status);
  } else {
    is_known_ = false;
  }
}

bool NamedEntry::is_current() const {
  if (!is_known_) return true;
  struct stat status{};
  if (::stat(path_.c_str(), &status) != 0) return !is_absence(errno) || !info_;
  return info_ && info_->same_file(to_info(status));
}

void throw_replaced_always(const Path& path) {
  throw Error::io(ESTALE, path.string())
      .problem("it was replaced ", kMaxReads, " times while it was read")
      .remedy("open it again");
}

}  // namespace tenfold::os
