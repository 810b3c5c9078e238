#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "os/process.hpp"

namespace tenfold::test {

/// The boot ID after a power failure in expect_survives_power_loss().
inline constexpr os::BootId kNextBoot = {std::byte{9}};

/// The content of a path after a crash.
enum class Found : std::uint8_t {
  absent,
  old_version,  ///< complete
  new_version,  ///< complete
  neither,      ///< anything else, which is an error
};

/// A writer with this guarantee: whatever happens during a save, its path contains the complete old
/// version or the complete new one. A row of the table in tests/formats/crash_test.cpp.
struct CrashCase {
  std::string name;       ///< of the test: letters and digits
  std::string file_name;  ///< to which the writer saves
  /// Saves the first version; need not be durable.
  std::function<void(const std::filesystem::path&)> make_old;
  /// Saves the second version, over the first one or to a new path. Keep it small: it runs some
  /// thousand times.
  std::function<void(const std::filesystem::path&, bool durable)> make_new;
  /// Opens the path as a user would, and compares every byte.
  std::function<Found(const std::filesystem::path&)> which;
  /// Opens the path "r+", if the format supports it; the lock is held as long as the result.
  std::function<std::shared_ptr<void>(const std::filesystem::path&)> write_through = {};
  /// Leftovers inside the path, if they cannot be recognised by their names.
  std::function<std::string(const std::filesystem::path&)> litter_in = {};
  /// A folder that is replaced only if its metadata names all of its files.
  bool keeps_foreign_files = false;
};

/// Kills the process before every change of the save, and half-way through every write. After each
/// kill, the path contains the old version or the new one, and one more save leaves the new one and
/// no leftovers.
void expect_survives_kill_at_every_change(const CrashCase& crash, bool durable, bool with_old);

/// Lets every change fail once with `system_errno`. After each failure, the path contains the old
/// version or the new one, and no descriptor is left open. A save that returns has saved: a failure
/// after its commit point is not an error. A save that throws leaves no leftovers, unless the new
/// version is in place.
void expect_survives_failure_of_every_change(const CrashCase& crash, bool durable, bool with_old,
                                             int system_errno);

/// Lets every close of a written file fail once with EIO, as on a network file system, with the
/// same guarantees.
void expect_survives_failure_of_every_close(const CrashCase& crash, bool durable, bool with_old);

/// Simulates a power failure at every moment of a durable save, `num_trials` times each with
/// different losses (see ModelDisk). After each, the path contains the old version or the new one;
/// if the save had returned, the new one.
void expect_survives_power_loss(const CrashCase& crash, bool with_old, int num_trials,
                                std::uint64_t seed);

/// A second process saves while the first is stopped before a change. With `all_interleavings`, the
/// second one is also stopped before each of its changes while the first continues. Afterwards the
/// path contains the version of one that succeeded, at least one succeeded, and errors are errors
/// of the library.
void expect_survives_second_writer(const CrashCase& crash, bool with_old, bool all_interleavings);

/// Forks a child before every change, which stays alive. The save succeeds, and so does the next.
void expect_survives_fork_at_every_change(const CrashCase& crash, bool with_old);

/// Opens the path "r+" before every change. The handle is refused, or the path still names the file
/// that it maps.
void expect_never_replaces_what_is_written_through(const CrashCase& crash);

/// Adds a foreign file to the folder before every change. It must exist afterwards.
void expect_keeps_foreign_files(const CrashCase& crash);

/// The path is private to its owner. At no moment of the save, nor after it, can others read the
/// new version: files, or the folders that contain them, are private too.
void expect_stays_private(const CrashCase& crash);

/// A durable save syncs each file through the descriptor that wrote it, because the kernel reports
/// writeback errors only to descriptors that were open at the time.
void expect_syncs_by_the_descriptor_that_wrote(const CrashCase& crash);

}  // namespace tenfold::test
