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

/// A writer that guarantees that its path contains the complete old version or the complete new one
/// after a crash or an error at any moment of a save. tests/formats/crash_test.cpp has a table of
/// the writers of files and folders. The tests of other writers, such as growing data sets,
/// dictionaries and checkpoints, have cases of their own.
struct CrashCase {
  std::string name;       ///< in the name of the test: letters and digits
  std::string file_name;  ///< of the path to which the writer saves
  /// Saves the old version. The save need not be durable.
  std::function<void(const std::filesystem::path&)> make_old;
  /// Saves the new version, over the old one or to a new path. It should be small, because it is
  /// saved some thousand times.
  std::function<void(const std::filesystem::path&, bool durable)> make_new;
  /// Recovers the path as open() does, reads it, compares the whole content with both versions, and
  /// returns which version it is.
  std::function<Found(const std::filesystem::path&)> which;
  /// Opens the path "r+" and returns the handle, which holds the lock. Empty if the format does not
  /// support "r+".
  std::function<std::shared_ptr<void>(const std::filesystem::path&)> write_through = {};
  /// Returns the leftovers inside the path. If empty, the tests check only the entries next to it.
  std::function<std::string(const std::filesystem::path&)> litter_in = {};
  /// The path is a folder that a save replaces only if the metadata names all files in it.
  bool keeps_foreign_files = false;
};

/// Makes the functions below interrupt a save at every change, even with AddressSanitizer. Without
/// this call, most of them interrupt only every seventh change with AddressSanitizer.
void crash_at_every_change();

/// Saves in child processes, two for each change. They end without any cleanup, as after SIGKILL:
/// one before the change, the other half-way through it if it is a write. Afterwards, the path
/// contains the old version or the new one, and one more save leaves the new version and no
/// leftovers.
void expect_survives_kill_at_every_change(const CrashCase& crash, bool durable, bool with_old);

/// Lets every change fail once with `system_errno`. After each failure, the path contains the old
/// version or the new one, and no descriptor is left open. If the save returns, the path contains
/// the new version, because a failure after the commit point is not an error. If the save throws
/// and the path does not contain the new version, there are no leftovers except a lease. After each
/// failure, one more save leaves the new version and no leftovers.
void expect_survives_failure_of_every_change(const CrashCase& crash, bool durable, bool with_old,
                                             int system_errno);

/// Lets every close of a written file fail once with EIO, as on a network file system. Expects the
/// same as expect_survives_failure_of_every_change().
void expect_survives_failure_of_every_close(const CrashCase& crash, bool durable, bool with_old);

/// Simulates power failures at every moment of a durable save: `num_trials` for each moment, with
/// different losses (see ModelDisk). After each failure, the path contains the old version or the
/// new one; if the save had returned, the new one. In every eighth trial, one more save then leaves
/// the new version and no leftovers.
void expect_survives_power_loss(const CrashCase& crash, bool with_old, int num_trials,
                                std::uint64_t seed);

/// A second process saves while the first is stopped before each of its changes. With
/// `all_interleavings`, the second one is also stopped before each of its changes while the first
/// continues. At least one of the saves must succeed, the path must contain the version of a save
/// that succeeded, and a save may fail only with an Error.
void expect_survives_second_writer(const CrashCase& crash, bool with_old, bool all_interleavings);

/// Before every change, forks a child that stays alive. The save must succeed. If the format
/// supports "r+", opening the path "r+" and one more save must succeed as well.
void expect_survives_fork_at_every_change(const CrashCase& crash, bool with_old);

/// Opens the path "r+" before every change. Either the open fails, or the path still names the
/// opened file after the save.
void expect_never_replaces_what_is_written_through(const CrashCase& crash);

/// Adds a foreign file to the folder before every change. The file must exist after the save.
void expect_keeps_foreign_files(const CrashCase& crash);

/// The path is private to its owner. Other users cannot read the new version at any moment of the
/// save or after it, because its files, or the folders that contain them, are private as well.
void expect_stays_private(const CrashCase& crash);

/// A durable save syncs each file through the descriptor that wrote it, because the kernel reports
/// writeback errors only to descriptors that were open when the error occurred.
void expect_syncs_by_the_descriptor_that_wrote(const CrashCase& crash);

}  // namespace tenfold::test
