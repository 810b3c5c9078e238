#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tenfold::os {

/// The boot ID of Linux, which is random for each boot. Readers compare a stored boot ID with the
/// current one, to detect that the system has restarted and may have lost data that was not
/// durable.
using BootId = std::array<std::byte, 16>;

/// The boot ID; zeros if the system does not report it.
BootId boot_id();

/// Makes boot_id() return `id`, to test recovery after a power failure; nullopt restores the real
/// boot ID. Returns the previous setting.
std::optional<BootId> set_boot_id(std::optional<BootId> id);

/// Number of files that one operation may keep open: a quarter of the process's limit of open files
/// (`ulimit -n`), at least 16 and at most 4096.
std::size_t num_files_to_keep_open() noexcept;

/// The process ID; differs in a forked child.
std::uint64_t process_id() noexcept;

/// The process that created this object; is_here() is false in a forked child.
class OwnProcess {
 public:
  bool is_here() const noexcept { return id_ == process_id(); }
  /// Throws Error(unsupported) in a forked child. `path`: the open file or folder, for the message.
  void require_here(const std::string& path) const;

 private:
  std::uint64_t id_ = process_id();
};

/// The name of this host, for messages; "unknown" if it has none.
std::string host_name();

/// A random number from the system's generator (getrandom); 0 if that fails.
std::uint64_t random_number() noexcept;

}  // namespace tenfold::os
