// Crash tests of data sets of parts: a SIGKILL at every change, an error of every change, and power
// failures at every moment. The rows must be those of the old manifest or of the new one.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/warnings.hpp>

#include "dataset/parts/growth.hpp"
#include "dataset/parts/parts_of.hpp"
#include "os/process.hpp"
#include "support/crash_harness.hpp"

namespace tenfold::test {
namespace {

/// Returns the number of rows, or -1 if a row has a wrong value.
std::int64_t num_whole_rows(const Path& path) {
  if (!verify(path).ok()) return -1;
  const Dataset ds(path);
  const Dataset expected(rows_of_all_kinds(0, ds.size()));
  const Batch found = ds.rows(0, ds.size());
  const Batch wanted = expected.rows(0, ds.size());
  for (std::size_t i = 0; i < found.columns().size(); ++i) {
    const BatchColumn& a = found.columns()[i];
    const BatchColumn& b = wanted.columns()[i];
    if (!is_same(a.values, b.values) || !is_same(a.offsets, b.offsets) ||
        !is_same(a.item_offsets, b.item_offsets)) {
      return -1;
    }
  }
  return ds.size();
}

Found which_parts(const Path& path) {
  const std::int64_t rows = num_whole_rows(path);
  if (rows == 3) return Found::old_version;
  return rows == 5 ? Found::new_version : Found::neither;
}

CrashCase commit_case() {
  CrashCase crash;
  crash.name = "CommitParts";
  crash.file_name = "ds";
  crash.make_old = [](const Path& path) {
    save(rows_of_all_kinds(0, 3), path / "a");
    commit_parts(path);
  };
  crash.make_new = [](const Path& path, bool durable) {
    save(rows_of_all_kinds(3, 5), path / "b", {.durable = durable});
    commit_parts(path, {.durable = durable});
  };
  crash.which = which_parts;
  return crash;
}

/// A part of `part_bytes` or more is full: with kNewPart the rows are appended to a new part, with
/// kSamePart to the last one.
CrashCase append_case(std::uint64_t part_bytes, bool attached_before) {
  CrashCase crash;
  crash.name = "AppendToParts";
  crash.file_name = "ds";
  crash.make_old = [attached_before](const Path& path) {
    Dataset ds = create_parts(path, Schema::of(rows_of_all_kinds(0, 1)));
    ds.append(Dataset(rows_of_all_kinds(0, 3)).rows(0, 3));
    // Without close(), the last part stays open, as after a crash of the writer.
    attached_before ? ds.flush() : ds.close();
  };
  crash.make_new = [part_bytes](const Path& path, bool durable) {
    set_part_bytes(part_bytes);
    Dataset ds(path, Mode::write_through);
    if (which_parts(path) == Found::old_version) {
      ds.append(Dataset(rows_of_all_kinds(3, 5)).rows(0, 2));
    }
    if (durable) ds.flush();
    if (durable) ds.close();
  };
  crash.which = which_parts;
  return crash;
}

/// The same case, but the path is read after a simulated reboot.
CrashCase after_a_boot(CrashCase crash) {
  const auto which = crash.which;
  crash.which = [which](const Path& path) {
    os::set_boot_id(kNextBoot);
    return which(path);
  };
  return crash;
}

constexpr std::uint64_t kNewPart = 1;
constexpr std::uint64_t kSamePart = std::uint64_t{1} << 30;

class PartsCrash : public ::testing::Test {
 protected:
  void TearDown() override {
    os::set_boot_id(std::nullopt);
    set_part_bytes(kSamePart);
  }
};

constexpr int kTrials = 16;

TEST_F(PartsCrash, CommitSurvivesACrashAtEveryChange) {
  expect_survives_kill_at_every_change(commit_case(), true, true);
  expect_survives_kill_at_every_change(commit_case(), false, true);
}

TEST_F(PartsCrash, CommitSurvivesAnErrorOfEveryChange) {
  expect_survives_failure_of_every_change(commit_case(), true, true, ENOSPC);
}

TEST_F(PartsCrash, CommitSurvivesAPowerFailureAtEveryMoment) {
  expect_survives_power_loss(commit_case(), true, kTrials, 2028);
}

TEST_F(PartsCrash, AppendSurvivesACrashAtEveryChange) {
  for (const bool attached : {false, true}) {
    expect_survives_kill_at_every_change(append_case(kSamePart, attached), true, true);
  }
}

TEST_F(PartsCrash, AppendToANewPartSurvivesACrashAtEveryChange) {
  for (const bool attached : {false, true}) {
    expect_survives_kill_at_every_change(append_case(kNewPart, attached), true, true);
  }
}

TEST_F(PartsCrash, AppendSurvivesAnErrorOfEveryChange) {
  expect_survives_failure_of_every_change(append_case(kSamePart, false), true, true, ENOSPC);
  expect_survives_failure_of_every_change(append_case(kNewPart, true), true, true, EIO);
}

TEST_F(PartsCrash, AppendSurvivesAPowerFailureAtEveryMoment) {
  expect_survives_power_loss(after_a_boot(append_case(kSamePart, false)), true, kTrials, 2029);
  os::set_boot_id(std::nullopt);
  expect_survives_power_loss(after_a_boot(append_case(kNewPart, false)), true, kTrials, 2030);
}

}  // namespace
}  // namespace tenfold::test
