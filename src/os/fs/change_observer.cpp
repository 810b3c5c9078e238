#include "os/fs/change_observer.hpp"

#include <sys/stat.h>

#include <atomic>
#include <string>
#include <utility>

#include "os/fs/announced_change.hpp"

namespace tenfold::os {
namespace {

std::atomic<ChangeObserver*> installed_observer{nullptr};
std::atomic<bool> exchange_is_supported{true};
std::atomic<bool> insert_is_supported{true};

}  // namespace

ChangeObserver* set_change_observer(ChangeObserver* observer) noexcept {
  return installed_observer.exchange(observer);
}

ChangeObserver* change_observer() noexcept {
  return installed_observer.load(std::memory_order_relaxed);
}

bool set_exchange_supported(bool supported) noexcept {
  return exchange_is_supported.exchange(supported);
}

bool exchange_supported() noexcept { return exchange_is_supported.load(std::memory_order_relaxed); }

bool set_insert_supported(bool supported) noexcept {
  return insert_is_supported.exchange(supported);
}

bool insert_supported() noexcept { return insert_is_supported.load(std::memory_order_relaxed); }

Change change_of(Change::Kind kind, int fd, std::string name, std::string other) {
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

}  // namespace tenfold::os
