#include "os/unreplaced.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <string>

#include "os/system.hpp"

namespace tenfold::os {
namespace {

bool is_absence(int system_errno) noexcept {
  return system_errno == ENOENT || system_errno == ENOTDIR;
}

}  // namespace

NamedEntry::NamedEntry(const Path& path) : path_(path) {
  // O_PATH: needs no permission of the entry, and waits for no FIFO.
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
  throw Error::io(ESTALE, path.string(),
                  path.string() + ": it was replaced " + std::to_string(kMaxReads) +
                      " times while it was read; open it again");
}

}  // namespace tenfold::os
