#include "mapper/hierarchy.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "mapper/hierarchy_builder.hpp"
#include "support/message_of.hpp"

namespace tenfold {
namespace {

using test::message_of;
using testing::ElementsAre;
using testing::HasSubstr;

const StateNames kNames = {[] { return base::Where("file"); },
                           [](std::size_t i) { return "number " + std::to_string(i); }};

/// Returns {"row": 1, "text": "x", "deep": {"*": mapper 0, "own": mapper 1}}. "*" is the default
/// key.
Hierarchy with_mappers() {
  HierarchyBuilder builder("*", base::Where("", "hierarchy"), ErrorCode::invalid_argument);
  builder.add("row", Value(1));
  builder.add("text", Value("x"));
  builder.begin_level("deep");
  builder.add_mapper("*");
  builder.add_mapper("own");
  builder.end_level();
  auto [config, tensors] = builder.build();
  TensorDict trees;
  for (const char* name : {"0", "1"}) trees.set(name, TensorDict());
  tensors.set("mappers", std::move(trees));
  MapperHead head;
  head.config = std::move(config);
  return Hierarchy(head, tensors);
}

StatePath path_of_keys(const std::vector<std::string>& keys) {
  StatePath path;
  for (const std::string& key : keys) EXPECT_TRUE(path.add(key));
  return path;
}

TEST(StatePath, JoinsTheComponentsThatCanBeKeys) {
  StatePath path = path_of_keys({"a", "1"});
  EXPECT_EQ(path.text, "a/1");
  EXPECT_FALSE(path.goes_on);
  path.add_other();
  EXPECT_TRUE(path.add("b"));
  EXPECT_EQ(path.text, "a/1");
  EXPECT_TRUE(path.goes_on);
  EXPECT_EQ(path.num_parts, 4U);
  EXPECT_FALSE(path.add(""));
  EXPECT_FALSE(path.add("b/c"));
  EXPECT_EQ(StatePath("a/b/c").num_parts, 3U);
}

TEST(JsonNumbers, TakesTuplesAsLists) {
  const Value inner(Value::Tuple{{1.0, 2.0}});
  const auto numbers = json_numbers(Value(Value::List{{inner, Value(Value::List{{3, 4}})}}));
  ASSERT_TRUE(numbers.has_value());
  EXPECT_EQ(numbers->shape, (Shape{2, 2}));
  EXPECT_THAT(numbers->floats, ElementsAre(1.0, 2.0, 3.0, 4.0));
  EXPECT_FALSE(json_numbers(Value(Value::Tuple{{inner, 1}})).has_value());
}

TEST(Hierarchy, PassesAMapperTheComponentsBelowItOrBelowTheLevelOfADefault) {
  const Hierarchy hierarchy = with_mappers();
  const auto num_above = [&](const StatePath& path) {
    const std::vector<StatePath> paths = {path};
    const StatePlace place = hierarchy.find(paths, kNames)[0];
    EXPECT_EQ(place.table, kMapperTable);
    return hierarchy.num_above(path, place.row, 0, kNames);
  };
  EXPECT_EQ(num_above(StatePath("deep/own/x/y")), 2U);
  EXPECT_EQ(num_above(StatePath("deep/*/x")), 2U);
  EXPECT_EQ(num_above(StatePath("deep/x/y")), 1U);
  EXPECT_EQ(num_above(StatePath("deep/owner")), 1U);
  StatePath path = path_of_keys({"deep", "own"});
  path.add_other();
  EXPECT_EQ(num_above(path), 2U);
  EXPECT_THAT(message_of([&] { num_above(StatePath("deep/own")); }, ErrorCode::key_not_found),
              HasSubstr("file: state number 0: it ends at a mapper: expected a longer path, which "
                        "ends with a state of the mapper, found 2 components"));
}

TEST(Hierarchy, NamesAStateWithoutAValue) {
  const Hierarchy hierarchy = with_mappers();
  const std::vector<StatePath> paths = {StatePath("row"), StatePath("none")};
  EXPECT_THAT(message_of([&] { hierarchy.find(paths, kNames); }, ErrorCode::key_not_found),
              HasSubstr("file: no state number 1: expected an existing path or a level with a "
                        "\"*\" above it, found neither; the nearest level that exists is the "
                        "root"));
}

TEST(PlaceGroups, AreTheRowsOfATableOrTheStatesOfAMapper) {
  const std::vector<StatePlace> places = {{1, 5}, {kMapperTable, 1}, {0, 2},
                                          {1, 4}, {kMapperTable, 0}, {kMapperTable, 1}};
  const std::vector<PlaceGroup> groups = groups_of(places);
  ASSERT_EQ(groups.size(), 4U);
  EXPECT_EQ(groups[0].mapper, 0);
  EXPECT_EQ(groups[1].table, kMapperTable);
  EXPECT_EQ(groups[1].mapper, 1);
  EXPECT_THAT(groups[1].positions, ElementsAre(1U, 5U));
  EXPECT_THAT(groups[2].positions, ElementsAre(2U));
  EXPECT_EQ(groups[3].table, 1);
  EXPECT_THAT(groups[3].positions, ElementsAre(0U, 3U));
  EXPECT_THAT(groups[3].rows, ElementsAre(5, 4));
  EXPECT_TRUE(groups_of({}).empty());
}

}  // namespace
}  // namespace tenfold
