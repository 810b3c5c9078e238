// Folders written by trainers, opened as a tree of their files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "formats/format.hpp"
#include "io/sample_trees.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {

using namespace std::string_view_literals;

namespace {

namespace fs = std::filesystem;
using test::difference;
using test::thrown_by;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

/// A folder with files like those of `checkpoint-500/`, which transformers' Trainer writes.
class Bundle : public testing::Test {
 protected:
  Bundle() {
    fs::create_directory(path_);
    save(test::sample_state_dict(), path_ / "model.safetensors");
    save(test::sample_checkpoint(), path_ / "optimizer.pt");
    test::write_bytes(path_ / "trainer_state.json", R"({"global_step": 500, "log_history": []})");
    test::write_bytes(path_ / "README.md", "# A model\n");
  }

  /// Replaces the model by a shard and its index.
  void shard_model() {
    fs::remove(path_ / "model.safetensors");
    save(test::sample_state_dict(), path_ / "model-00001-of-00001.safetensors");
    std::string map;
    for (const std::string& key : test::sample_state_dict().keys()) {
      map += (map.empty() ? "\"" : ", \"") + key + R"(": "model-00001-of-00001.safetensors")";
    }
    test::write_bytes(path_ / "model.safetensors.index.json",
                      R"({"metadata": {"total_size": 1}, "weight_map": {)" + map + "}}");
  }

  test::TemporaryFolder folder_;
  Path path_ = folder_ / "checkpoint-500";
};

TEST_F(Bundle, OpensAsATreeOfItsFiles) {
  EXPECT_EQ(probe(path_), "bundle");
  const TensorDict tree = open(path_);
  EXPECT_THAT(tree.keys(), ElementsAre("README.md", "model", "optimizer", "trainer_state"));
  EXPECT_EQ(difference(tree["model"], open(path_ / "model.safetensors")), "");
  EXPECT_EQ(difference(tree["optimizer"], test::sample_checkpoint()), "");
  EXPECT_EQ(tree["trainer_state"].value("global_step"), Value(500));
}

TEST_F(Bundle, RefusesAnUnknownFormatOnAccessAndNamesItsKey) {
  const TensorDict tree = open(path_);
  for (const KeyPath& path : {KeyPath{"README.md"}, KeyPath{"README.md", "bytes"}}) {
    const auto thrown = thrown_by([&] { tree.get(path); });
    EXPECT_EQ(thrown.code, ErrorCode::unsupported);
    EXPECT_THAT(thrown.message, AllOf(HasSubstr((path_ / "README.md: not a known").string()),
                                      HasSubstr("starts with \"# A mode")));
  }
  EXPECT_THAT(thrown_by([&] { load(path_); }).message,
              AllOf(HasSubstr("key \"README.md\": not a known format"), HasSubstr("exclude")));
  EXPECT_THAT(thrown_by([&] { convert(path_, folder_ / "all"); }).message,
              HasSubstr("key \"README.md\""));
  EXPECT_FALSE(fs::exists(folder_ / "all"));
}

TEST_F(Bundle, LoadsRequestedEntries) {
  const TensorDict some = load(path_, {.keys = {"model", "trainer_state"}});
  EXPECT_THAT(some.keys(), ElementsAre("model", "trainer_state"));
  const TensorDict rest = load(path_, {.exclude = {"README.md"}, .verify = true});
  EXPECT_THAT(rest.keys(), ElementsAre("model", "optimizer", "trainer_state"));
}

TEST_F(Bundle, ReturnsTheBytesOfUnknownFormatsOnRequest) {
  const TensorDict all = load(path_, {.allow_opaque = true});
  std::string bytes;
  all.for_each([&](const std::string& key, const TensorDict::Item& item) {
    if (key != "README.md") return;
    const auto& node = std::get<TensorDict>(item);
    ASSERT_TRUE(node.info().is_refused());
    node.for_each([&](const std::string&, const TensorDict::Item& of) {
      bytes = test::bytes_of(std::get<Leaf>(of).tensor());
    });
  });
  EXPECT_EQ(bytes, "# A model\n");
}

TEST_F(Bundle, ConvertsWithoutExcludedEntries) {
  convert(path_, folder_ / "all", {.exclude = {"README.md"}});
  EXPECT_TRUE(diff(path_, folder_ / "all").removed == std::vector<std::string>{"README.md.bytes"});
  EXPECT_EQ(difference(open(folder_ / "all")["optimizer"], test::sample_checkpoint()), "");
}

TEST_F(Bundle, ComparesBytesOfFilesInUnknownFormats) {
  fs::copy(path_, folder_ / "copy");
  EXPECT_TRUE(diff(path_, folder_ / "copy").same());
  test::write_bytes(folder_ / "copy/README.md", "# B model\n");
  const DiffReport report = diff(path_, folder_ / "copy");
  ASSERT_EQ(report.changed.size(), 1u);
  EXPECT_EQ(report.changed[0].key, "README.md.bytes");
}

TEST_F(Bundle, NeverComparesFoldersInUnknownFormatsAsEqual) {
  fs::create_directory(path_ / "runs");
  EXPECT_THAT(thrown_by([&] { open(path_).get("runs"); }).message,
              HasSubstr((path_ / "runs: not a known format").string()));
  const DiffReport report = diff(path_, path_);
  ASSERT_EQ(report.changed.size(), 1u);
  EXPECT_EQ(report.changed[0].key, "runs");
  EXPECT_THAT(report.changed[0].a, HasSubstr("not compared"));
}

TEST_F(Bundle, VerifiesEveryEntryAndNamesThoseWithoutChecksums) {
  const VerifyReport report = verify(path_);
  EXPECT_TRUE(report.ok());
  EXPECT_GT(report.num_checksums, 0u);
  EXPECT_THAT(report.unchecked, ElementsAre("README.md", "trainer_state"));
}

TEST_F(Bundle, NamesTheDamagedEntryAndReadsTheOthers) {
  std::string bytes = test::read_bytes(path_ / "optimizer.pt");
  test::write_bytes(path_ / "optimizer.pt", std::string_view(bytes).substr(0, bytes.size() / 2));
  const TensorDict tree = open(path_);
  const auto thrown = thrown_by([&] { tree.get("optimizer"); });
  EXPECT_EQ(thrown.code, ErrorCode::corrupt);
  EXPECT_THAT(thrown.message, HasSubstr("optimizer.pt"));
  EXPECT_EQ(tree["model"].size(), 3u);
  const VerifyReport report = verify(path_);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].path, (path_ / "optimizer.pt").string());
  // load() reports a problem only if the affected entry is requested.
  EXPECT_EQ(load(path_, {.keys = {"model"}, .verify = true})["model"].size(), 3u);
}

TEST_F(Bundle, VerifiesTheRequestedMembersOfAnNpzFile) {
  TensorDict arrays;
  arrays.set("damaged", Tensor::from(std::vector<float>{1, 2, 3}));
  arrays.set("other", Tensor::from(std::vector<float>{4, 5, 6}));
  fs::create_directory(path_ / "inner");
  test::write_bytes(path_ / "inner" / "trainer_state.json", "{}");
  for (const Path& file : {path_ / "arrays.npz", path_ / "inner" / "arrays.npz"}) {
    save(arrays, file);
    std::string bytes = test::read_bytes(file);
    const float one = 1;
    const std::size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&one), 4));
    ASSERT_NE(at, std::string::npos);
    bytes[at] ^= 1;
    test::write_bytes(file, bytes);
  }
  for (const std::string prefix : {"arrays.", "inner.arrays."}) {
    const auto load_key = [&](const std::string& key) {
      return load(path_, {.keys = std::vector<std::string>{prefix + key}, .verify = true});
    };
    EXPECT_EQ(thrown_by([&] { load_key("damaged"); }).code, ErrorCode::corrupt) << prefix;
    EXPECT_EQ(load_key("other").size(), 1u) << prefix;
  }
}

TEST_F(Bundle, NamesAnInvalidJsonFile) {
  test::write_bytes(path_ / "trainer_state.json", "{\"global_step\": ");
  EXPECT_EQ(thrown_by([&] { open(path_).get("trainer_state"); }).code, ErrorCode::corrupt);
  EXPECT_EQ(verify(path_).problems.size(), 1u);
}

TEST_F(Bundle, ReadsAnIndexAsOneEntry) {
  shard_model();
  const TensorDict tree = open(path_);
  EXPECT_THAT(tree.keys(), ElementsAre("README.md", "model", "optimizer", "trainer_state"));
  EXPECT_EQ(tree["model"].size(), 3u);
  EXPECT_TRUE(verify(path_).ok());
}

TEST_F(Bundle, ShowsTheShardsOfAnIndexThatCannotBeRead) {
  shard_model();
  test::write_bytes(path_ / "model.safetensors.index.json", "{");
  const TensorDict tree = open(path_);
  EXPECT_THAT(tree.keys(), ElementsAre("README.md", "model-00001-of-00001", "model", "optimizer",
                                       "trainer_state"));
  EXPECT_EQ(tree["model-00001-of-00001"].size(), 3u);
}

TEST_F(Bundle, KeepsTheSuffixOfEqualStems) {
  save(test::sample_state_dict(), path_ / "optimizer.bin");
  test::write_bytes(path_ / "model", "a file called as the stem of another");
  test::write_bytes(path_ / "a.pt.json", "1");
  test::write_bytes(path_ / "a.json", "2");
  save(test::sample_state_dict(), path_ / "a.pt");
  const TensorDict tree = open(path_);
  EXPECT_THAT(tree.keys(),
              ElementsAre("README.md", "a.json", "a.pt", "a.pt.json", "model", "model.safetensors",
                          "optimizer.bin", "optimizer.pt", "trainer_state"));
  EXPECT_EQ(tree.value("a.json"), Value(2));
  EXPECT_EQ(tree.value("a.pt.json"), Value(1));
  EXPECT_EQ(tree["a.pt"].size(), 3u);
}

TEST_F(Bundle, IgnoresHiddenFiles) {
  test::write_bytes(path_ / ".DS_Store", "x");
  EXPECT_EQ(open(path_).size(), 4u);
}

TEST_F(Bundle, IsReadOnly) {
  EXPECT_THAT(thrown_by([&] { open(path_, {.mode = Mode::write_through}); }).message,
              HasSubstr("found \"r+\""));
  const TensorDict tree = test::sample_state_dict();
  EXPECT_THAT(thrown_by([&] { save(tree, folder_ / "new", {.format = "bundle"}); }).message,
              HasSubstr("and writes none"));
  EXPECT_FALSE(fs::exists(folder_ / "new"));
  // A save to the path of the folder is refused, because it would replace all entries.
  EXPECT_EQ(thrown_by([&] { save(tree, path_); }).code, ErrorCode::invalid_argument);
  EXPECT_THAT(
      thrown_by([&] { convert(path_ / "model.safetensors", path_, {.format = "bundle"}); }).message,
      HasSubstr("and writes none"));
  EXPECT_EQ(open(path_).size(), 4u);
}

TEST_F(Bundle, ReportsThatItsFolderWasReplaced) {
  const TensorDict tree = open(path_);
  fs::rename(path_, folder_ / "old");
  fs::copy(folder_ / "old", path_);
  const auto thrown = thrown_by([&] { tree.get("model"); });
  EXPECT_EQ(thrown.code, ErrorCode::io);
  EXPECT_THAT(thrown.message,
              HasSubstr("the folder was replaced, moved or removed; open it again"));
}

TEST_F(Bundle, IsReadAfterTheProgramHasChangedItsWorkingDirectory) {
  const Path before = fs::current_path();
  fs::current_path(folder_.path());
  const TensorDict tree = open("checkpoint-500");
  EXPECT_EQ(tree["model"].where(), "checkpoint-500/model.safetensors");
  fs::current_path(before);
  EXPECT_EQ(tree["optimizer"].where(), (path_ / "optimizer.pt").string());
}

TEST_F(Bundle, OpensMemmapFoldersAndNestedBundles) {
  save(test::sample_state_dict(), path_ / "pytorch_model_fsdp_0");
  fs::create_directory(path_ / "global_step500");
  save(test::sample_state_dict(), path_ / "global_step500/mp_rank_00_model_states.pt");
  test::write_bytes(path_ / "global_step500/notes.txt", "?");
  const TensorDict tree = open(path_);
  EXPECT_EQ(tree["pytorch_model_fsdp_0"].size(), 3u);
  EXPECT_EQ(tree["global_step500"]["mp_rank_00_model_states"].size(), 3u);
  EXPECT_THAT(verify(path_).unchecked,
              ElementsAre("README.md", "global_step500.notes.txt", "trainer_state"));
}

TEST_F(Bundle, LimitsNestingOfBundles) {
  Path path = path_;
  for (int level = 0; level < 5; ++level) {
    path /= "checkpoint-1";
    fs::create_directory(path);
    test::write_bytes(path / "trainer_state.json", "{}");
  }
  const TensorDict tree = open(path_);
  const TensorDict inner = tree["checkpoint-1"]["checkpoint-1"];
  EXPECT_THAT(thrown_by([&] { inner.get("checkpoint-1"); }).message,
              HasSubstr("expected at most 3"));
  EXPECT_TRUE(verify(path_).ok());
}

TEST_F(Bundle, OpensAnyFolderIfTheFormatIsGiven) {
  fs::remove(path_ / "trainer_state.json");
  EXPECT_EQ(thrown_by([&] { open(path_); }).code, ErrorCode::unsupported);
  EXPECT_THAT(open(path_, {.format = "bundle"}).keys(),
              ElementsAre("README.md", "model", "optimizer"));
}

TEST_F(Bundle, IsProbedAfterMemmapFolders) {
  save(test::sample_state_dict(), folder_ / "memmap");
  test::write_bytes(folder_ / "memmap/trainer_state.json", "{}");
  EXPECT_EQ(probe(folder_ / "memmap"), "memmap");
}

TEST(BundleMarkers, DecideWhichFoldersAreBundles) {
  const std::pair<std::vector<std::string>, bool> cases[] = {
      {{"trainer_state.json"}, true},
      {{"random_states_0.pkl", "model.safetensors"}, true},
      {{"mp_rank_00_model_states.pt"}, true},
      {{"zero_pp_rank_0_mp_rank_00_optim_states.pt"}, true},
      {{"bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"}, true},
      {{"metadata.pkl", "model_0.pt", "model_1.pt"}, true},
      {{"metadata.pkl"}, false},
      {{"model_0.pt"}, false},
      {{"metadata.pkl", "model_.pt", "_0.pt"}, false},
      {{"random_states_.pkl", "mp_rank_.pt"}, false},
      {{"model.safetensors", "config.json"}, false},
      {{"checkpoint.json"}, false},
      {{}, false}};
  for (const auto& [names, is_bundle] : cases) {
    const test::TemporaryFolder folder;
    for (const std::string& name : names) test::write_bytes(folder / name, "{}");
    EXPECT_EQ(detail::formats::bundle::kFormat.probe(folder.path()), is_bundle)
        << (names.empty() ? "" : names[0]);
  }
}

TEST(BundleMarkers, AreFilesAndNotFolders) {
  const test::TemporaryFolder folder;
  fs::create_directory(folder / "trainer_state.json");
  EXPECT_FALSE(detail::formats::bundle::kFormat.probe(folder.path()));
}

TEST_F(Bundle, ReadsAPlainPickleWithoutExecutingIt) {
  // pickle.dumps({"a": 1, "b": [True, None]}, 2)
  test::write_bytes(path_ / "metadata.pkl",
                    "\x80\x02}q\0(X\x01\0\0\0aq\x01K\x01X\x01\0\0\0bq\x02]q\x03"
                    "(\x88Neu."sv);
  // os.system("true"), as a pickle would call it
  test::write_bytes(path_ / "evil.pkl",
                    "\x80\x02"
                    "cos\nsystem\nVtrue\n\x85R.");
  const TensorDict tree = open(path_);
  EXPECT_EQ(tree["metadata"].value("a"), Value(1));
  const auto evil = std::get<TensorDict>(tree.get("evil"));
  EXPECT_EQ(evil.kind(), NodeKind::opaque);
  EXPECT_THAT(evil.info().class_name, HasSubstr("system"));
  EXPECT_THAT(verify(path_).unchecked, testing::Contains("metadata"));
}

}  // namespace
}  // namespace tenfold
