#include "support/crash_harness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>

#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"
#include "support/crash_file.hpp"
#include "support/model_disk.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::test {
namespace {

// Each of the following writers has one defect, such as a missing sync, which the harness must
// detect.

os::File create_new(os::Directory& parent) {
  parent.remove_tree("new");
  os::File file = os::File::create_at(parent, "new");
  write_all(file, content('n'));
  return file;
}

void rename_without_sync(const Path& path) {
  os::Parent parent = os::open_parent(path, false);
  create_new(parent.directory);
  parent.directory.rename("new", parent.name);
  parent.directory.sync();
}

void sync_after_the_rename(const Path& path) {
  os::Parent parent = os::open_parent(path, false);
  os::File file = create_new(parent.directory);
  parent.directory.rename("new", parent.name);
  file.sync();
  parent.directory.sync();
}

void forget_the_parent(const Path& path) {
  os::Parent parent = os::open_parent(path, false);
  create_new(parent.directory).sync();
  parent.directory.rename("new", parent.name);
}

void write_in_place(const Path& path) {
  os::File file = os::File::open_read_write(path);
  write_all(file, content('n'));
  file.sync();
}

void leave_the_old_name_empty(const Path& path) {
  os::Parent parent = os::open_parent(path, false);
  create_new(parent.directory).sync();
  parent.directory.sync();
  parent.directory.remove_tree(parent.name);
  parent.directory.rename("new", parent.name);
  parent.directory.sync();
}

void use_a_new_name_each_time(const Path& path) {
  os::Parent parent = os::open_parent(path, false);
  const std::string name = "new-" + std::to_string(parent.directory.list().size());
  os::File file = os::File::create_at(parent.directory, name);
  write_all(file, content('n'));
  parent.directory.rename(name, parent.name);
}

struct BrokenWriter {
  const char* name;
  void (*save)(const Path& path);
  bool by_kill;       ///< a crash shows the defect, otherwise a power failure does
  const char* found;  ///< a part of the expected report
};

class CrashHarness : public ::testing::TestWithParam<BrokenWriter> {};

TEST_P(CrashHarness, DetectsADefectiveWriter) {
  crash_at_every_change();
  const BrokenWriter& writer = GetParam();
  const CrashCase broken = {"Broken", "data.bin",
                            [](const Path& path) { save_file(path, 'o', false); },
                            [&writer](const Path& path, bool) { writer.save(path); }, which_file};
  ::testing::TestPartResultArray failures;
  {
    ::testing::ScopedFakeTestPartResultReporter capture(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    if (writer.by_kill) {
      expect_survives_kill_at_every_change(broken, true, true);
    } else {
      expect_survives_power_loss(broken, true, kCrashTrials, 1);
    }
  }
  ASSERT_GT(failures.size(), 0);
  EXPECT_THAT(failures.GetTestPartResult(0).message(), ::testing::HasSubstr(writer.found));
}

INSTANTIATE_TEST_SUITE_P(
    BrokenWriters, CrashHarness,
    ::testing::Values(
        BrokenWriter{"RenameWithoutSync", rename_without_sync, false, "neither version"},
        BrokenWriter{"SyncAfterTheRename", sync_after_the_rename, false, "neither version"},
        BrokenWriter{"ForgetTheParent", forget_the_parent, false, "though the save had returned"},
        BrokenWriter{"WriteInPlaceAtAPowerFailure", write_in_place, false, "neither version"},
        BrokenWriter{"WriteInPlaceAtAKill", write_in_place, true, "neither version"},
        BrokenWriter{"LeaveTheOldNameEmpty", leave_the_old_name_empty, true, "found absent"},
        BrokenWriter{"UseANewNameEachTime", use_a_new_name_each_time, true, "one more save"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(FailureOfEveryClose, DetectsAWriterWhoseClosesAreNotTested) {
  const CrashCase broken = {"Broken", "data.bin",
                            [](const Path& path) { save_file(path, 'o', false); },
                            [](const Path& path, bool) { write_in_place(path); }, which_file};
  EXPECT_NONFATAL_FAILURE(expect_survives_failure_of_every_close(broken, true, true),
                          "nothing can be refused");
}

TEST(ModelDisk, KeepsASymbolicLink) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "disk");
  std::filesystem::create_symlink("nowhere", folder / "disk" / "link");
  const ModelDisk disk(folder / "disk");
  std::mt19937_64 random(1);
  disk.lose_power({1, 1}, random, folder / "after");
  EXPECT_EQ(std::filesystem::read_symlink(folder / "after" / "link").string(), "nowhere");
}

}  // namespace
}  // namespace tenfold::test
