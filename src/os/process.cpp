#include "os/process.hpp"

#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <deque>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>

#include "base/fail.hpp"
#include "os/process_wide.hpp"

namespace tenfold::os {
namespace {

/// Reads the boot ID, a UUID such as "b4d2c9e0-7f0d-4a53-9d3e-6f3a2d1c0b9a", without the hyphens.
BootId read_boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  file >> text;
  BootId id{};
  std::size_t digit = 0;
  for (const char c : text) {
    const std::string_view digits = "0123456789abcdef";
    const std::size_t value = digits.find(c);
    if (value == std::string_view::npos || digit == 2 * id.size()) continue;
    id[digit / 2] |= static_cast<std::byte>(digit % 2 == 0 ? value << 4U : value);
    ++digit;
  }
  return id;
}

/// The real boot ID, read once per process.
struct OwnBootId {
  const BootId id = read_boot_id();
};

/// The boot ID that tests have set; null: the real boot ID is used.
std::atomic<const BootId*> id_for_tests{nullptr};

}  // namespace

BootId boot_id() {
  const BootId* const set = id_for_tests.load(std::memory_order_acquire);
  return set != nullptr ? *set : ProcessWide<OwnBootId>::get().id;
}

std::optional<BootId> set_boot_id(std::optional<BootId> id) {
  // The IDs are never freed, because other threads may be reading them.
  static std::mutex mutex;
  static std::deque<BootId> kept;
  const std::lock_guard lock(mutex);
  const BootId* const set = id ? &kept.emplace_back(*id) : nullptr;
  const BootId* const before = id_for_tests.exchange(set, std::memory_order_acq_rel);
  return before == nullptr ? std::nullopt : std::optional(*before);
}

std::size_t num_files_to_keep_open() noexcept {
  constexpr rlim_t kMax = 4096;
  constexpr rlim_t kMin = 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMin;
  return std::clamp(limit.rlim_cur / 4, kMin, kMax);
}

std::uint64_t process_id() noexcept { return static_cast<std::uint64_t>(::getpid()); }

void OwnProcess::require_here(const std::string& path) const {
  if (is_here()) return;
  throw base::unsupported(path)
      .problem("opened before the process forked")
      .expected("the process that opened it")
      .found("a forked child")
      .remedy("open it again in the forked child");
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.front() == '\0' ? "unknown" : name.data();
}

std::uint64_t random_number() noexcept {
  std::uint64_t number = 0;
  // getrandom never returns fewer bytes than requested for such a small size.
  static_cast<void>(::getrandom(&number, sizeof number, 0));
  return number;
}

}  // namespace tenfold::os
