// Crash tests of dictionaries: a SIGKILL at every change of the file system, an error of every
// change, and power failures at every moment. Every key must have its old or its new value.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include <tenfold/error.hpp>
#include <tenfold/mapped_dict.hpp>
#include <tenfold/warnings.hpp>

#include "core/notes/notes.hpp"
#include "dict/dict_of.hpp"
#include "os/process.hpp"
#include "support/crash_harness.hpp"

namespace tenfold::test {
namespace {

constexpr std::int64_t kOld = 8;

/// Returns which version is at `path`. In the old version, key<i> has the value i for i < 8. The
/// new version has `num_new` keys, and key3 has the value 33. After a simulated power failure,
/// checksums cannot be compared, because the disk model does not see writes through mappings.
Found which(const Path& path, std::int64_t num_new, bool with_checksums) {
  set_warning_handler([](const std::string&) {});
  const MappedDict dict(path);
  const bool is_whole = with_checksums ? verify(path).ok() : dict.check().empty();
  set_warning_handler(nullptr);
  if (!is_whole) return Found::neither;
  const std::int64_t size = dict.size();
  if (size != kOld && size != num_new) return Found::neither;
  for (std::int64_t i = 0; i < num_new; ++i) {
    const std::string key = "key" + std::to_string(i);
    if (dict.contains(key) != (i < size)) return Found::neither;
    if (i != 3 && i < size && pair_at(dict, key) != i) return Found::neither;
  }
  const std::int64_t changed = pair_at(dict, "key3");
  if (changed != 3 && changed != 33) return Found::neither;
  // The writer changes key3 before it adds keys, so key3 may have either value while the size is
  // old.
  if (size == kOld) return Found::old_version;
  return changed == 33 ? Found::new_version : Found::neither;
}

CrashCase writing(std::int64_t num_new, bool with_checksums = true) {
  CrashCase crash;
  crash.name = "MappedDict";
  crash.file_name = "dict";
  crash.make_old = [](const Path& path) { build_pairs(path, kOld); };
  crash.which = [=](const Path& path) { return which(path, num_new, with_checksums); };
  crash.make_new = [num_new](const Path& path, bool durable) {
    set_warning_handler([](const std::string&) {});
    MappedDict dict(path, Mode::write_through);
    dict.assign(Words(1, 3).keys(), pairs(33, 1));
    if (dict.size() == kOld) {
      dict.extend(Words(num_new - kOld, kOld).keys(), pairs(kOld, num_new - kOld));
    }
    if (durable) dict.flush();
    if (durable) dict.close();
    set_warning_handler(nullptr);
  };
  return crash;
}

/// Returns the case with a check that runs after a simulated reboot.
CrashCase after_a_boot(CrashCase crash) {
  const auto before = crash.which;
  crash.which = [before](const Path& path) {
    os::set_boot_id(kNextBoot);
    return before(path);
  };
  return crash;
}

class MappedDictCrash : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void TearDown() override {
    os::set_boot_id(std::nullopt);
    set_warning_handler(nullptr);
  }
};

TEST_P(MappedDictCrash, SurvivesACrashAtEveryChange) {
  expect_survives_kill_at_every_change(writing(GetParam()), true, true);
  expect_survives_kill_at_every_change(writing(GetParam()), false, true);
}

TEST_P(MappedDictCrash, SurvivesAnErrorOfEveryChange) {
  expect_survives_failure_of_every_change(writing(GetParam()), true, true, ENOSPC);
  expect_survives_failure_of_every_change(writing(GetParam()), false, true, EIO);
}

TEST_P(MappedDictCrash, SurvivesAPowerFailureAtEveryMoment) {
  expect_survives_power_loss(after_a_boot(writing(GetParam(), false)), true, 24, 7);
}

/// A writer crashes after it enlarged the index. The next writer repairs the dictionary by building
/// a smaller index, and crashes as well.
TEST(MappedDictRepair, SurvivesACrashAtEveryChange) {
  constexpr std::int64_t kNew = kOld + 40;
  CrashCase crash = writing(kNew);
  crash.make_old = [](const Path& path) {
    build_pairs(path, kOld);
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        MappedDict dict(path, Mode::write_through);
        dict.extend(Words(kNew - kOld, kOld).keys(), pairs(kOld, kNew - kOld));
        ::_exit(0);  // without close(), as in a crash
      } catch (...) {
        ::_exit(1);
      }
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  };
  crash.which = [](const Path& path) {
    if (!verify(path).ok()) return Found::neither;
    const MappedDict dict(path);
    if (dict.size() != kNew) return Found::neither;
    const std::int64_t changed = pair_at(dict, "key3");
    return changed == 3 ? Found::old_version : changed == 33 ? Found::new_version : Found::neither;
  };
  expect_survives_kill_at_every_change(crash, true, true);
}

// One more key fits into the index. For 40 more keys, the index is rebuilt.
INSTANTIATE_TEST_SUITE_P(Keys, MappedDictCrash, ::testing::Values(kOld + 1, kOld + 40));

}  // namespace
}  // namespace tenfold::test
