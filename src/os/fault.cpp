#include "os/fault.hpp"

#include <atomic>

#include "os/seam.hpp"

namespace tenfold::os {
namespace {

std::atomic<ChangeObserver*> installed_observer{nullptr};
std::atomic<bool> exchange_is_supported{true};

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

}  // namespace tenfold::os
