#include "core/path_select.hpp"

#include <gtest/gtest.h>

namespace tenfold {
namespace {

const KeyPath kWeight = {"model", "encoder", "weight"};

TEST(PathSelect, NoKeysSelectNothing) { EXPECT_FALSE(selected(kWeight, {})); }

TEST(PathSelect, AnExactPathSelectsTheLeafOrTheWholeSubtree) {
  EXPECT_TRUE(selected(kWeight, {{"model.encoder.weight"}}));
  EXPECT_TRUE(selected(kWeight, {{"model", "encoder", "weight"}}));
  EXPECT_TRUE(selected(kWeight, {{"model"}}));
  EXPECT_TRUE(selected(kWeight, {{"model.encoder"}}));
  EXPECT_TRUE(selected(kWeight, {{"model", "encoder"}}));
  EXPECT_FALSE(selected(kWeight, {{"mod"}}));
  EXPECT_FALSE(selected(kWeight, {{"model.enc"}}));
  EXPECT_FALSE(selected(kWeight, {{"encoder"}}));
  EXPECT_FALSE(selected(kWeight, {{"model", "encoder", "weight", "x"}}));
}

TEST(PathSelect, KeysThatHoldDotsAreOneKey) {
  EXPECT_TRUE(selected({"model", "encoder.weight"}, {{"model.encoder.weight"}}));
  EXPECT_TRUE(selected({"model", "encoder.weight"}, {{"model", "encoder.weight"}}));
  EXPECT_FALSE(selected({"model", "encoder.weight"}, {{"model", "encoder", "weight"}}));
}

TEST(PathSelect, AGlobSelectsWhatItMatchesAndEverythingBelow) {
  EXPECT_TRUE(selected(kWeight, {{"model.*"}}));
  EXPECT_TRUE(selected(kWeight, {{"*.weight"}}));
  EXPECT_TRUE(selected(kWeight, {{"model.enc?der"}}));
  EXPECT_FALSE(selected(kWeight, {{"*.bias"}}));
  EXPECT_FALSE(selected({"model"}, {{"model.*"}}));
  EXPECT_TRUE(selected(kWeight, {{"*.bias"}, {"mod[e]l"}}));
}

TEST(PathSelect, AKeyThatLooksLikeAGlobSelectsItself) {
  EXPECT_TRUE(selected({"w[0]"}, {{"w[0]"}}));
  EXPECT_FALSE(selected({"w[1]"}, {{"w[0]"}}));
}

TEST(PathSelect, NodesWithoutAPossibleMatchNeedNotBeEntered) {
  EXPECT_TRUE(may_select_below({}, {{"model.*"}}));
  EXPECT_TRUE(may_select_below({"model"}, {{"model.*"}}));
  EXPECT_TRUE(may_select_below({"model"}, {{"model.encoder.weight"}}));
  EXPECT_TRUE(may_select_below({"model"}, {{"model", "encoder", "weight"}}));
  EXPECT_TRUE(may_select_below({"model", "encoder"}, {{"model"}}));
  EXPECT_TRUE(may_select_below({"optimizer"}, {{"*.weight"}}));
  EXPECT_FALSE(may_select_below({"optimizer"}, {{"model.*"}}));
  EXPECT_FALSE(may_select_below({"mod"}, {{"model.encoder"}}));
  EXPECT_FALSE(may_select_below({"model", "decoder"}, {{"model", "encoder", "weight"}}));
  EXPECT_FALSE(may_select_below({}, {}));
}

}  // namespace
}  // namespace tenfold
