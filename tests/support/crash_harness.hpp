#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "os/process.hpp"

namespace tenfold::test {

/// The boot ID that saves have after a power loss of expect_survives_power_loss().
inline constexpr os::BootId kNextBoot = {std::byte{9}};

/// What is found at a path.
enum class Found : std::uint8_t {
  absent,
  old_version,  ///< whole
  new_version,  ///< whole
  neither,      ///< anything else: what must never be
};

/// A writer that promises: whatever happens while it saves, its path holds the old version or the
/// new, whole. A row of the table in tests/formats/crash_test.cpp.
struct CrashCase {
  std::string name;       ///< of the test: letters and digits
  std::string file_name;  ///< that the writer saves under
  /// Saves the first version; need not be durable.
  std::function<void(const std::filesystem::path&)> make_old;
  /// Saves the second version, over the first or where there was none. Keep it small: it runs some
  /// thousand times.
  std::function<void(const std::filesystem::path&, bool durable)> make_new;
  /// Opens what is there as a user would, and compares every byte.
  std::function<Found(const std::filesystem::path&)> which;
  /// Opens what is there "r+", where the format can; the lock lives as long as the result.
  std::function<std::shared_ptr<void>(const std::filesystem::path&)> write_through = {};
  /// The litter that lies in what is at the path, if one look at its name does not tell.
  std::function<std::string(const std::filesystem::path&)> litter_in = {};
  /// A folder that is replaced only if its metadata names all that is in it.
  bool keeps_foreign_files = false;
};

/// The process is killed before every change of the save, and half-way through every write. After
/// each: the path holds the old version or the new; one more save leaves the new one and no litter.
void expect_survives_kill_at_every_change(const CrashCase& crash, bool durable, bool with_old);

/// Every change fails once with `system_errno`. After each the path holds the old version or the
/// new, and no descriptor is left open. A save that returns has saved: what fails after its commit
/// point is no error. A save that throws leaves no litter, unless the new version is in place.
void expect_survives_failure_of_every_change(const CrashCase& crash, bool durable, bool with_old,
                                             int system_errno);

/// Every close of a file that was written fails once with EIO, as on a network file system. The
/// same holds.
void expect_survives_failure_of_every_close(const CrashCase& crash, bool durable, bool with_old);

/// The power goes at every moment of a durable save, `num_trials` times each with other losses (see
/// ModelDisk). After each: the path holds the old version or the new; if the save had returned, the
/// new one.
void expect_survives_power_loss(const CrashCase& crash, bool with_old, int num_trials,
                                std::uint64_t seed);

/// A second process saves while the first is stopped before a change; `all_interleavings` stops the
/// second one, too, before each of its changes while the first goes on. Afterwards the path holds
/// the version of one that succeeded, one at least did, and errors are errors of the library.
void expect_survives_second_writer(const CrashCase& crash, bool with_old, bool all_interleavings);

/// A child is forked before every change, and lives on. The save succeeds, and so does the next.
void expect_survives_fork_at_every_change(const CrashCase& crash, bool with_old);

/// What is at the path is opened "r+" before every change. The handle is refused, or what it writes
/// through stays what the path names.
void expect_never_replaces_what_is_written_through(const CrashCase& crash);

/// A foreign file arrives in the folder before every change. It is there afterwards.
void expect_keeps_foreign_files(const CrashCase& crash);

/// What is at the path is private to its owner. Before no change of the save, nor after it, can
/// others read what is new: files, or the folders that they lie in, are private, too.
void expect_stays_private(const CrashCase& crash);

/// A durable save syncs each file by the descriptor that wrote it, as the kernel reports an error
/// of writing back to those that were open when it happened.
void expect_syncs_by_the_descriptor_that_wrote(const CrashCase& crash);

}  // namespace tenfold::test
