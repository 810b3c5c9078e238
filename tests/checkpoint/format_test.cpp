// Opening the folder of a step.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <filesystem>
#include <string>

#include "io/sample_trees.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

namespace fs = std::filesystem;
using test::difference;
using test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class StepFolder : public testing::Test {
 protected:
  StepFolder() {
    TensorDict state = test::sample_checkpoint();
    state.set("scale", test::counting({2}));
    path_ = manager_.save(500, state);
  }

  test::TemporaryFolder folder_;
  CheckpointManager manager_{folder_ / "run"};
  Path path_;
};

TEST_F(StepFolder, OpensAsTheTreeOfItsEntries) {
  EXPECT_EQ(probe(path_), "bundle");
  // The step contains only the entries that checkpoint.json lists, so this file is ignored.
  test::write_bytes(path_ / "stray.json", "1");
  const TensorDict tree = open(path_);
  EXPECT_EQ(difference(tree, manager_.restore().state), "");
  EXPECT_THAT(tree.keys(), ElementsAre("model", "optimizer", "epoch", "scale"));
  EXPECT_EQ(tree.at("scale").shape(), Shape{2});  // a tensor, not a node {"value": tensor}
  EXPECT_EQ(tree.value("epoch"), Value(3));
}

TEST_F(StepFolder, IsLoadedConvertedAndCompared) {
  EXPECT_EQ(difference(load(path_, {.keys = {"model"}, .verify = true})["model"],
                       test::sample_checkpoint()["model"]),
            "");
  convert(path_, folder_ / "copy");
  EXPECT_TRUE(diff(path_, folder_ / "copy").same());
}

TEST_F(StepFolder, IsVerifiedByEveryChecksum) {
  const VerifyReport whole = verify(path_);
  EXPECT_TRUE(whole.ok());
  EXPECT_THAT(whole.unchecked, IsEmpty());
  EXPECT_EQ(whole.num_checksums, manager_.verify(500).num_checksums);
  std::string bytes = test::read_bytes(path_ / "model.safetensors");
  bytes.back() ^= 1;
  test::write_bytes(path_ / "model.safetensors", bytes);
  EXPECT_THAT(verify(path_).problems.at(0).path, HasSubstr("model.safetensors"));
  EXPECT_EQ(thrown_by([&] { load(path_, {.verify = true}); }).code, ErrorCode::corrupt);
  EXPECT_NO_THROW(load(path_, {.keys = {"optimizer"}, .verify = true}));
}

TEST_F(StepFolder, DamagedEntryDoesNotAffectOthers) {
  test::write_bytes(path_ / "model.safetensors", "short");
  fs::remove(path_ / "epoch.json");
  const TensorDict tree = open(path_);
  EXPECT_EQ(thrown_by([&] { tree.get("model"); }).code, ErrorCode::corrupt);
  EXPECT_EQ(thrown_by([&] { tree.get("epoch"); }).code, ErrorCode::file_not_found);
  EXPECT_EQ(tree.at("scale").shape(), Shape{2});
}

TEST_F(StepFolder, DoesNotFollowSymlinks) {
  fs::rename(path_ / "model.safetensors", folder_ / "m.safetensors");
  fs::create_symlink(folder_ / "m.safetensors", path_ / "model.safetensors");
  EXPECT_THAT(thrown_by([&] { open(path_).get("model"); }).message,
              HasSubstr("a symbolic link, which is not followed"));
  EXPECT_FALSE(verify(path_).ok());
}

TEST_F(StepFolder, IsReadOnly) {
  EXPECT_THAT(thrown_by([&] { open(path_, {.mode = Mode::write_through}); }).message,
              HasSubstr("found \"r+\""));
  EXPECT_EQ(thrown_by([&] { save(test::sample_state_dict(), path_); }).code,
            ErrorCode::invalid_argument);
  EXPECT_TRUE(verify(path_).ok());
}

TEST_F(StepFolder, ReportsThatItWasReplaced) {
  const TensorDict tree = open(path_);
  manager_.save(500, test::sample_checkpoint(), {.force = true});
  EXPECT_THAT(thrown_by([&] { tree.get("model"); }).message,
              HasSubstr("the folder was replaced, moved or removed; open it again"));
}

TEST_F(StepFolder, ReportsADamagedDocument) {
  std::string text = test::read_bytes(path_ / "checkpoint.json");
  test::write_bytes(path_ / "checkpoint.json", std::string_view(text).substr(0, text.size() / 2));
  EXPECT_EQ(probe(path_), "bundle");
  EXPECT_EQ(thrown_by([&] { open(path_); }).code, ErrorCode::corrupt);
  EXPECT_FALSE(verify(path_).ok());
}

TEST_F(StepFolder, CanBeAnEntryOfATrainerFolder) {
  test::write_bytes(folder_ / "run/trainer_state.json", "{}");
  const TensorDict tree = open(folder_ / "run");
  EXPECT_THAT(tree.keys(), ElementsAre("step_00000500", "trainer_state"));
  EXPECT_EQ(tree["step_00000500"].value("epoch"), Value(3));
}

}  // namespace
}  // namespace tenfold
