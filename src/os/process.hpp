#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tenfold::os {

/// What tells this run of the system from every other one. Whoever writes it into a file can tell
/// later whether the system has stopped since, and with it what was not on the device.
using BootId = std::array<std::byte, 16>;

/// Of this run; zeros where the system does not say.
BootId boot_id();

/// Makes boot_id() give `id` (nothing: the system's own again). For tests of what is found after
/// the power was lost; returns what was set before.
std::optional<BootId> set_boot_id(std::optional<BootId> id);

/// How many files one operation may keep open: a quarter of what the process may open (`ulimit
/// -n`), 4096 at most.
std::size_t num_files_to_keep_open() noexcept;

/// The number of this process, which its forks do not share.
std::uint64_t process_id() noexcept;

/// The name of this host, for messages; "unknown" if it has none.
std::string host_name();

/// A number that nobody else draws, of the system's generator.
std::uint64_t random_number() noexcept;

}  // namespace tenfold::os
