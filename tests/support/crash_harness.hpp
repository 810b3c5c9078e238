#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace tenfold::test {

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
};

/// The process is killed before every change of the save, and half-way through every write. After
/// each: the path holds the old version or the new; one more save leaves the new one and no litter.
void expect_survives_kill_at_every_change(const CrashCase& crash, bool durable, bool with_old);

/// Every change fails once with `system_errno`. After each: the save has thrown, the path holds the
/// old version or the new, no litter, no descriptor left open.
void expect_survives_failure_of_every_change(const CrashCase& crash, bool durable, bool with_old,
                                             int system_errno);

/// The power goes at every moment of a durable save, `num_trials` times each with other losses (see
/// ModelDisk). After each: the path holds the old version or the new; if the save had returned, the
/// new one.
void expect_survives_power_loss(const CrashCase& crash, bool with_old, int num_trials,
                                std::uint64_t seed);

}  // namespace tenfold::test
