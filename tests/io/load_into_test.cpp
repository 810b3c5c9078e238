#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <string>

#include "io/sample_trees.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using test::bytes_of;
using test::counting;
using test::difference;
using test::node_of;
using test::sample_state_dict;
using test::thrown_by;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

/// Returns tensors with the names (after `prefix`) and shapes of those in `tree`, filled with -1.
TensorDict blank_like(const TensorDict& tree, const std::string& prefix = "") {
  TensorDict blank = node_of(NodeKind::dict);
  for (const std::string& key : tree.keys()) {
    Tensor tensor = Tensor::zeros(DType::float32, tree.at(key).shape());
    for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.mutable_data<float>()[i] = -1;
    blank.set(prefix + key, tensor);
  }
  return blank;
}

class LoadInto : public testing::TestWithParam<std::string> {
 protected:
  Path saved(const TensorDict& tree) { return save(tree, folder_ / GetParam()); }

  test::TemporaryFolder folder_;
};

TEST_P(LoadInto, FillsTheTensorsOfTheTarget) {
  const TensorDict target = blank_like(sample_state_dict());
  const Tensor weight = target.at("encoder.weight");
  const std::byte* before = weight.raw_data();
  const LoadReport report = load_into(target, saved(sample_state_dict()));
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(report.loaded,
              UnorderedElementsAre("encoder.weight", "encoder.bias", "decoder.weight"));
  EXPECT_EQ(difference(target, sample_state_dict()), "");
  EXPECT_EQ(target.at("encoder.weight").raw_data(), before);
}

TEST_P(LoadInto, MatchesNestedAndFlatNames) {
  TensorDict target;
  TensorDict encoder;
  encoder.set("weight", Tensor::zeros(DType::float32, {3, 4}));
  encoder.set("bias", Tensor::zeros(DType::float32, {3}));
  TensorDict decoder;
  decoder.set("weight", Tensor::zeros(DType::float32, {2, 3}));
  target.set("encoder", encoder);
  target.set("decoder", decoder);
  EXPECT_TRUE(load_into(target, saved(sample_state_dict())).ok());
  EXPECT_EQ(bytes_of(target.at("decoder", "weight")), bytes_of(counting({2, 3}, 60)));
}

TEST_P(LoadInto, StrictListsEveryDifferenceAndChangesNothing) {
  TensorDict target = blank_like(sample_state_dict());
  target.set("encoder.bias", Tensor::zeros(DType::float16, {3}));
  target.set("decoder.weight", Tensor::zeros(DType::float32, {3, 2}));
  target.set("extra", Tensor::zeros(DType::float32, {1}));
  TensorDict source = sample_state_dict();
  source.set("other", counting({1}));
  const Path path = saved(source);
  const auto thrown = thrown_by([&] { load_into(target, path); });
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
  EXPECT_THAT(thrown.message, HasSubstr("1 missing, 1 unexpected, 2 mismatched"));
  EXPECT_THAT(thrown.message, HasSubstr("missing from the source (1): \"extra\""));
  EXPECT_THAT(thrown.message, HasSubstr("not in the target (1): \"other\""));
  EXPECT_THAT(thrown.message, HasSubstr("\"encoder.bias\": expected float16 [3], found float32 "
                                        "[3]; to convert it, use the option cast"));
  EXPECT_THAT(thrown.message,
              EndsWith("\"decoder.weight\": expected float32 [3, 2], found float32 [2, 3]"));
  EXPECT_EQ(target.at("encoder.weight").data<float>()[0], -1);
}

TEST_P(LoadInto, ReportsAndLoadsTheRestIfNotStrict) {
  TensorDict target = blank_like(sample_state_dict());
  target.set("extra", Tensor::zeros(DType::float32, {1}));
  target.set("encoder.bias", Tensor::zeros(DType::float32, {4}));
  const LoadReport report = load_into(target, saved(sample_state_dict()), {.strict = false});
  EXPECT_THAT(report.missing, ElementsAre("extra"));
  ASSERT_EQ(report.mismatched.size(), 1U);
  EXPECT_EQ(report.mismatched[0].name, "encoder.bias");
  EXPECT_EQ(report.mismatched[0].expected, "float32 [4]");
  EXPECT_EQ(report.mismatched[0].found, "float32 [3]");
  EXPECT_EQ(bytes_of(target.at("encoder.weight")), bytes_of(counting({3, 4})));
}

TEST_P(LoadInto, SuggestsARenameForAPrefix) {
  const Path path = saved(sample_state_dict());
  const auto adds = thrown_by([&] { load_into(blank_like(sample_state_dict(), "module."), path); });
  EXPECT_THAT(adds.message, HasSubstr("with the prefix \"module.\""));
  const Path wrapped = saved(blank_like(sample_state_dict(), "module."));
  const auto strips = thrown_by([&] { load_into(blank_like(sample_state_dict()), wrapped); });
  EXPECT_THAT(strips.message, HasSubstr("without the source's prefix \"module.\""));
  TensorDict other = node_of(NodeKind::dict);
  other.set("unrelated", counting({1}));
  EXPECT_THAT(thrown_by([&] { load_into(other, path); }).message, Not(HasSubstr("prefix")));
}

TEST_P(LoadInto, Renames) {
  const TensorDict target = blank_like(sample_state_dict(), "module.");
  const LoadReport report =
      load_into(target, saved(sample_state_dict()),
                {.rename = [](const std::string& name) { return "module." + name; }});
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(bytes_of(target.at("module.encoder.bias")), bytes_of(counting({3}, 50)));
}

TEST_P(LoadInto, RefusesARenameThatGivesTwoTensorsOneName) {
  const auto thrown = thrown_by([&] {
    load_into(blank_like(sample_state_dict()), saved(sample_state_dict()),
              {.rename = [](const std::string&) { return std::string("x"); }});
  });
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
  EXPECT_THAT(thrown.message, HasSubstr("two tensors are called \"x\""));
}

TEST_P(LoadInto, CastsIfRequested) {
  TensorDict target = node_of(NodeKind::dict);
  target.set("encoder.weight", Tensor::zeros(DType::float64, {3, 4}));
  target.set("encoder.bias", Tensor::zeros(DType::int64, {3}));
  target.set("decoder.weight", Tensor::zeros(DType::float32, {2, 3}));
  EXPECT_TRUE(load_into(target, saved(sample_state_dict()), {.cast = true}).ok());
  EXPECT_EQ(target.at("encoder.weight").data<double>()[11], 11);
  EXPECT_EQ(target.at("encoder.bias").data<std::int64_t>()[2], 52);
}

TEST_P(LoadInto, FillsStridedTensorsInPlace) {
  const Tensor storage = Tensor::zeros(DType::float32, {4, 3});
  TensorDict target = node_of(NodeKind::dict);
  target.set("w", Tensor(DType::float32, {3, 4}, {1, 3}, storage.buffer(), 0));
  TensorDict source = node_of(NodeKind::dict);
  source.set("w", counting({3, 4}));
  EXPECT_TRUE(load_into(target, saved(source)).ok());
  EXPECT_EQ(bytes_of(target.at("w")), bytes_of(counting({3, 4})));
  EXPECT_EQ(storage.data<float>()[1], 4);  // row 1, column 0
}

TEST_P(LoadInto, WithKeysReportsNoMissingTensorsOutsideTheKeys) {
  const TensorDict target = blank_like(sample_state_dict());
  const LoadReport report = load_into(target, saved(sample_state_dict()), {.keys = {"encoder.*"}});
  EXPECT_THAT(report.loaded, UnorderedElementsAre("encoder.weight", "encoder.bias"));
  EXPECT_TRUE(report.missing.empty());
  EXPECT_EQ(target.at("decoder.weight").data<float>()[0], -1);
}

TEST_P(LoadInto, SplitsLargeTensorsAmongThreads) {
  TensorDict source = node_of(NodeKind::dict);
  source.set("w", counting({3000, 3001}));  // three tasks, the last one shorter
  TensorDict target = node_of(NodeKind::dict);
  target.set("w", Tensor::zeros(DType::float32, {3000, 3001}));
  load_into(target, saved(source), {.num_threads = 2});
  EXPECT_EQ(difference(target, source), "");
}

INSTANTIATE_TEST_SUITE_P(Formats, LoadInto, testing::Values("tree", "tree.safetensors"),
                         [](const auto& file) {
                           return std::string(file.param == "tree" ? "Memmap" : "Safetensors");
                         });

/// A target with the same tensor under two keys, and a source with different numbers under these
/// two keys.
struct Tied {
  Tied() {
    for (const char* name : {"first", "second"}) target.set(name, memory);
    source.set("second", counting({kRows}, 2));
    source.set("first", counting({kRows}, 1));
  }
  // So large that several threads could write to `memory` if both sources were copied.
  static constexpr std::int64_t kRows = 9 << 20;
  Tensor memory = Tensor::zeros(DType::float32, {kRows});
  TensorDict target, source;
};

TEST(LoadIntoTree, TheLastOfTwoNamesForTheSameMemoryWins) {
  const Tied tied;
  const LoadReport report = load_into(tied.target, tied.source, {.num_threads = 4});
  EXPECT_THAT(report.loaded, UnorderedElementsAre("first", "second"));
  EXPECT_EQ(bytes_of(tied.memory), bytes_of(tied.source.at("second")));
}

TEST(LoadIntoTree, OverlappingTargetsAreWrittenSequentially) {
  const Tensor memory = Tensor::zeros(DType::float32, {6});
  TensorDict target, source;
  target.set("middle", memory.narrow(1, 5));
  target.set("all", memory);
  target.set("even", Tensor(DType::float32, {3}, {2}, memory.buffer(), 0));
  source.set("even", counting({3}, 20));
  source.set("all", counting({6}, 10));
  source.set("middle", counting({4}, 1));
  EXPECT_TRUE(load_into(target, source).ok());
  EXPECT_THAT(memory.span<float>(), ElementsAre(20, 11, 21, 13, 22, 15));
}

TEST(LoadIntoTree, CountsSharedMemoryOnceInProgress) {
  struct Last : Monitor {
    void report(std::uint64_t done_bytes, std::uint64_t total_bytes, std::string_view) override {
      done = done_bytes;
      total = total_bytes;
    }
    bool stop() override { return false; }
    std::uint64_t done = 0, total = 0;
  };
  const Tied tied;
  Last last;
  load_into(tied.target, tied.source, {.monitor = &last});
  EXPECT_EQ(last.total, tied.memory.nbytes());
  EXPECT_EQ(last.done, last.total);
}

TEST(LoadIntoTree, RefusesATargetWithOverlappingElements) {
  const Tensor one = Tensor::zeros(DType::float32, {1});
  TensorDict target, source;
  target.set("x", Tensor(DType::float32, {4}, {0}, one.buffer(), 0));
  source.set("x", counting({4}));
  const auto thrown = thrown_by([&] { load_into(target, source); });
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
  EXPECT_THAT(thrown.message,
              EndsWith("expected a tensor with memory for each element, found an expanded one"));
}

TEST(LoadIntoTree, SuggestsThePrefixOfAModelInsideACheckpoint) {
  TensorDict checkpoint;
  checkpoint.set("model", sample_state_dict());
  TensorDict optimizer;
  optimizer.set("sum", counting({3}));
  checkpoint.set("optimizer", optimizer);
  const TensorDict target = blank_like(sample_state_dict());
  EXPECT_THAT(thrown_by([&] { load_into(target, checkpoint); }).message,
              EndsWith("the names match without the source's prefix \"model.\"; "
                       "select the keys \"model.*\" and pass a rename that removes it"));
  const auto remove = [](const std::string& name) { return name.substr(6); };
  EXPECT_TRUE(load_into(target, checkpoint, {.rename = remove, .keys = {"model.*"}}).ok());
}

TEST(LoadIntoTree, TensorsOfAFlatTargetThatTheKeysSelectAreMissing) {
  TensorDict source;
  source.set("a", sample_state_dict());
  TensorDict target = blank_like(sample_state_dict(), "a.");
  target.set("a.extra", counting({1}));
  target.set("b", counting({1}));
  for (const Keys& keys : {Keys({"a"}), Keys({"a.*"})}) {
    EXPECT_THAT(load_into(target, source, {.strict = false, .keys = keys}).missing,
                ElementsAre("a.extra"));
  }
}

TEST(LoadIntoTree, SuggestsThePrefixOfTheSelectedKeys) {
  TensorDict checkpoint;
  checkpoint.set("model", sample_state_dict());
  const TensorDict target = blank_like(sample_state_dict());
  EXPECT_THAT(thrown_by([&] { load_into(target, checkpoint, {.keys = {"model"}}); }).message,
              EndsWith("the names match without the source's prefix \"model.\"; pass a rename that "
                       "removes it"));
}

TEST(LoadIntoTree, SuggestsAPrefixSharedByMostNames) {
  TensorDict target = blank_like(sample_state_dict());
  target.set("extra", counting({1}));
  EXPECT_THAT(
      thrown_by([&] { load_into(target, blank_like(sample_state_dict(), "module.")); }).message,
      HasSubstr("3 of the 4 names match without the source's prefix \"module.\""));
}

TEST(LoadIntoTree, RefusesReadOnlyTargets) {
  const Tensor zeros = Tensor::zeros(DType::float32, {2});
  TensorDict target;
  target.set("x", Tensor(DType::float32, {2},
                         Buffer::read_only(zeros.buffer().bytes(), zeros.buffer().owner())));
  TensorDict source;
  source.set("x", counting({2}));
  const auto thrown = thrown_by([&] { load_into(target, source); });
  EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
  EXPECT_THAT(thrown.message, HasSubstr("read-only"));
}

TEST(LoadIntoTree, ReadsSourcesBeforeItWritesTargetsInTheSameMemory) {
  const std::int64_t n = 1000;
  const Tensor matrix = counting({n, n});
  TensorDict target = node_of(NodeKind::dict);
  target.set("x", matrix);
  TensorDict source = node_of(NodeKind::dict);
  source.set("x", Tensor(DType::float32, {n, n}, {1, n}, matrix.buffer(), 0));
  const float before = matrix.at<float>(n - 1, 1);
  load_into(target, source);
  EXPECT_EQ(matrix.at<float>(1, n - 1), before);

  const Tensor a = Tensor::from(std::vector<float>{1});
  const Tensor b = Tensor::from(std::vector<float>{2});
  TensorDict pair = node_of(NodeKind::dict);
  pair.set("a", a);
  pair.set("b", b);
  TensorDict swapped = node_of(NodeKind::dict);
  swapped.set("a", b);
  swapped.set("b", a);
  load_into(pair, swapped);
  EXPECT_EQ(a.item<float>(), 2);
  EXPECT_EQ(b.item<float>(), 1);
}

TEST(LoadIntoTree, WritesThroughToAMappedFolder) {
  const test::TemporaryFolder folder;
  const Path path = save(blank_like(sample_state_dict()), folder / "target");
  load_into(open(path, {.mode = Mode::write_through}), sample_state_dict());
  EXPECT_EQ(difference(load(path), sample_state_dict()), "");
}

TEST(LoadIntoTree, LimitsTheNamesItLists) {
  TensorDict target;
  for (int i = 0; i < 100; ++i) target.set("t" + std::to_string(i), counting({1}));
  const auto thrown = thrown_by([&] { load_into(target, TensorDict()); });
  EXPECT_THAT(thrown.message, HasSubstr("missing from the source (100)"));
  EXPECT_THAT(thrown.message, HasSubstr("\"t19\" and 80 more"));
  EXPECT_THAT(thrown.message, Not(HasSubstr("\"t20\"")));
}

}  // namespace
}  // namespace tenfold
