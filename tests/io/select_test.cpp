#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenfold/tenfold.hpp>

#include <string>
#include <vector>

#include "io/sample_trees.hpp"
#include "io/selector.hpp"

namespace tenfold {
namespace {

using test::node_of;
using test::sample_checkpoint;
using test::thrown_by;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names(const TensorDict& tree) {
  std::vector<std::string> result;
  tree.for_each_leaf(
      [&](const KeyPath& path, const TensorDict::Item&) { result.push_back(dotted(path)); });
  return result;
}

TEST(Select, ReturnsTheTreeItselfWithoutKeys) {
  const TensorDict tree = sample_checkpoint();
  EXPECT_TRUE(select(tree, {}).same_node(tree));
}

TEST(Select, SelectsEverythingBelowANode) {
  EXPECT_THAT(names(select(sample_checkpoint(), {"model"})),
              ElementsAre("model.embed.weight", "model.head.weight", "model.head.bias"));
}

TEST(Select, ReadsOneStringAsADottedName) {
  EXPECT_THAT(names(select(sample_checkpoint(), {"optimizer.state.0"})),
              ElementsAre("optimizer.state.0.exp_avg"));
}

TEST(Select, ReadsSeveralStringsAsAPathOnly) {
  EXPECT_THAT(names(select(sample_checkpoint(), {{"model", "head.bias"}})),
              ElementsAre("model.head.bias"));
  EXPECT_EQ(thrown_by([] { select(sample_checkpoint(), {{"model", "head", "bias"}}); }).code,
            ErrorCode::key_not_found);
}

TEST(Select, MatchesGlobsOverDottedNames) {
  EXPECT_THAT(names(select(sample_checkpoint(), {"*.weight"})),
              ElementsAre("model.embed.weight", "model.head.weight"));
  EXPECT_THAT(names(select(sample_checkpoint(), {"opt*.state"})),
              ElementsAre("optimizer.state.0.exp_avg"));
}

TEST(Select, OmitsExcludedEntries) {
  EXPECT_THAT(names(select(sample_checkpoint(), {}, {"optimizer", "*.bias"})),
              ElementsAre("model.embed.weight", "model.head.weight", "epoch"));
}

TEST(Select, SelectsPathsAsItSelectsEntries) {
  const std::vector<KeyPath> paths = {{"model", "0.weight"}, {"model", "0.bias"}, {"epoch"}};
  EXPECT_EQ(selected_paths(paths, {}), paths);
  EXPECT_THAT(selected_paths(paths, {"model", "none"}), ElementsAre(paths[0], paths[1]));
  EXPECT_THAT(selected_paths(paths, {"model"}, {"*.bias"}), ElementsAre(paths[0]));
  EXPECT_THAT(selected_paths(paths, {}, {"model"}), ElementsAre(paths[2]));
  EXPECT_TRUE(selected_paths(paths, std::vector<KeyPath>()).empty());
}

TEST(Select, AKeyBelowAnExcludedEntryExists) {
  const TensorDict tree = sample_checkpoint();
  EXPECT_THAT(names(select(tree, {"optimizer.state.0", "epoch"}, {"optimizer"})),
              ElementsAre("epoch"));
  EXPECT_EQ(thrown_by([&] { select(tree, {"optimizer.nope"}, {"optimizer"}); }).code,
            ErrorCode::key_not_found);
}

TEST(Select, KeepsKindAndOrder) {
  const TensorDict some = select(sample_checkpoint(), {"optimizer.state", "model.head.bias"});
  EXPECT_THAT(some.keys(), ElementsAre("model", "optimizer"));
  EXPECT_TRUE(some["optimizer"]["state"].info().int_keys);
}

TEST(Select, AListWithoutAllItemsBecomesADict) {
  TensorDict list = node_of(NodeKind::list);
  for (const char* key : {"0", "1", "2"}) list.set(key, test::counting({2}));
  TensorDict tree;
  tree.set("layers", list);
  const TensorDict some = select(tree, {{"layers", "0"}, {"layers", "2"}});
  EXPECT_EQ(some["layers"].kind(), NodeKind::dict);
  EXPECT_TRUE(some["layers"].info().int_keys);
  EXPECT_THAT(some["layers"].keys(), ElementsAre("0", "2"));
  EXPECT_EQ(select(tree, {{"layers", "0"}})["layers"].kind(), NodeKind::list);
}

TEST(Select, ARootThatBecomesADictKeepsItsMetadata) {
  TensorDict list = node_of(NodeKind::list);
  for (const char* key : {"0", "1"}) list.set(key, test::counting({2}));
  list.info().metadata = {{"a", "b"}};
  const TensorDict some = select(list, {"1"});
  EXPECT_EQ(some.kind(), NodeKind::dict);
  EXPECT_EQ(some.info().metadata, list.info().metadata);
}

TEST(Select, ANodeThatContainsItselfIsAnError) {
  TensorDict tree;
  tree.set("self", tree);
  const auto expect_error = [&](const Keys& keys, const Keys& exclude) {
    const auto thrown = thrown_by([&] { select(tree, keys, exclude); });
    EXPECT_EQ(thrown.code, ErrorCode::invalid_argument);
    EXPECT_THAT(thrown.message, HasSubstr("contains itself"));
  };
  expect_error({"self"}, {});
  expect_error({"other"}, {});
  expect_error({}, {"other"});
  expect_error(Keys(std::vector<KeyPath>{}), {"other"});
  tree.set("self", Value(0));  // otherwise the node is never destroyed
}

TEST(Select, APartOfAnOpaqueNodeBecomesADict) {
  TensorDict object = node_of(NodeKind::opaque);
  TensorDict state = node_of(NodeKind::dict);
  for (const char* key : {"a", "b"}) state.set(key, test::counting({2}));
  object.set("0", state);
  object.set("1", test::counting({2}));
  TensorDict tree;
  tree.set("object", object);
  tree.set("other", test::counting({2}));
  for (const char* excluded : {"object.1", "object.0", "object.0.a"}) {
    EXPECT_EQ(select(tree, {}, {excluded})["object"].kind(), NodeKind::dict) << excluded;
    EXPECT_EQ(select(tree, {"object"}, {excluded})["object"].kind(), NodeKind::dict) << excluded;
  }
  EXPECT_EQ(select(tree, {"object.0"})["object"].kind(), NodeKind::dict);
  EXPECT_EQ(select(tree, {}, {"other"})["object"].kind(), NodeKind::opaque);
  EXPECT_EQ(select(tree, {"object"})["object"].kind(), NodeKind::opaque);
}

TEST(Select, ReportsAGlobThatMatchesNothing) {
  const auto thrown = thrown_by([] { select(sample_checkpoint(), {"model", "decoder.*"}); });
  EXPECT_EQ(thrown.code, ErrorCode::key_not_found);
  EXPECT_THAT(thrown.message, HasSubstr("no key matches \"decoder.*\""));
}

TEST(Select, SupportsThousandsOfKeys) {
  TensorDict tree;
  std::vector<KeyPath> keys;
  for (int i = 0; i < 20000; ++i) {
    tree.set("k" + std::to_string(i), Value(i));
    if (i % 2 == 0) keys.push_back({"k" + std::to_string(i)});
  }
  EXPECT_EQ(select(tree, keys).size(), 10000U);
}

TEST(Keys, AreNamesPathsOrNotGiven) {
  EXPECT_FALSE(Keys().given());
  EXPECT_EQ(Keys({"a.*", "b"}).paths(), (std::vector<KeyPath>{{"a.*"}, {"b"}}));
  EXPECT_EQ(Keys({{"a", "b"}}).paths(), (std::vector<KeyPath>{{"a", "b"}}));
  EXPECT_EQ(Keys({{"a", "b"}, {"c"}}).paths(), (std::vector<KeyPath>{{"a", "b"}, {"c"}}));
  EXPECT_EQ(Keys({KeyPath{"a"}}).paths(), (std::vector<KeyPath>{{"a"}}));
  const std::vector<std::string> names = {"a"};
  EXPECT_EQ(Keys(names).paths(), (std::vector<KeyPath>{{"a"}}));
}

TEST(Keys, AreStringsOfAnyTypeInBraces) {
  const std::string s = "a.*";
  const std::string_view view = "v";
  const auto keys = [](Keys given) { return given.paths(); };
  EXPECT_EQ(keys({s}), (std::vector<KeyPath>{{"a.*"}}));
  EXPECT_EQ(keys({s, s}), (std::vector<KeyPath>{{"a.*"}, {"a.*"}}));
  EXPECT_EQ((Keys{s, s}.paths()), (std::vector<KeyPath>{{"a.*"}, {"a.*"}}));
  EXPECT_EQ(keys({"b", s, view}), (std::vector<KeyPath>{{"b"}, {"a.*"}, {"v"}}));
  EXPECT_EQ(keys({{"b", s}}), (std::vector<KeyPath>{{"b", "a.*"}}));
  EXPECT_EQ(keys({{s}}), (std::vector<KeyPath>{{"a.*"}}));
  EXPECT_EQ(keys({{"a"}, {"b", s}}), (std::vector<KeyPath>{{"a"}, {"b", "a.*"}}));
  EXPECT_EQ(keys({{"a", "b"}}), (std::vector<KeyPath>{{"a", "b"}}));
  EXPECT_TRUE(keys({}).empty());
}

TEST(Select, AnEmptyListOfKeysSelectsNothing) {
  const TensorDict tree = sample_checkpoint();
  EXPECT_TRUE(select(tree, Keys(std::vector<KeyPath>{})).empty());
  EXPECT_TRUE(select(tree, Keys(std::vector<KeyPath>{}), {"epoch"}).empty());
  EXPECT_EQ(thrown_by([&] { select(tree, Keys(std::vector<KeyPath>{}), {"typo"}); }).code,
            ErrorCode::key_not_found);
  EXPECT_TRUE(select(tree, Keys()).same_node(tree));
  EXPECT_TRUE(select(tree, Keys(), Keys(std::vector<KeyPath>{})).same_node(tree));
}

}  // namespace
}  // namespace tenfold
