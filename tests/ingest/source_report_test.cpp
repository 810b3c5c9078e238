#include "ingest/source_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tenfold/error.hpp>

#include "support/message_of.hpp"

namespace tenfold {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Column> columns_at(const std::vector<KeyPath>& paths) {
  std::vector<Column> made(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) made[i].path = paths[i];
  return made;
}

TEST(SelectedColumns, ANameIsThatOfAColumnOrOfARecordAroundIt) {
  const auto is_below = [](const KeyPath& column, const std::string& name) {
    EXPECT_EQ(known_columns(columns_at({column}), {name}).size(), 1 - position_of(column, {name}));
    return position_of(column, {name}) == 0;
  };
  EXPECT_TRUE(is_below({"a", "b", "c"}, "a"));
  EXPECT_TRUE(is_below({"a", "b", "c"}, "a.b"));
  EXPECT_TRUE(is_below({"a.b", "c"}, "a.b"));
  EXPECT_FALSE(is_below({"a.b"}, "a"));
  EXPECT_FALSE(is_below({"ab"}, "a"));
  EXPECT_FALSE(is_below({"a"}, "a.b"));
  EXPECT_EQ(position_of({"a", "b"}, {"b", "a", "a.b"}), 1U);
  EXPECT_EQ(position_of({"c"}, {"b", "a"}), 2U);
}

TEST(SelectedColumns, HaveTheOrderOfTheNames) {
  const auto columns = columns_at({{"x"}, {"r", "a"}, {"y"}, {"r", "b"}});
  EXPECT_THAT(known_columns(columns, {}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(known_columns(columns, {"r", "x", "r.a", "z"}), ElementsAre(1, 3, 0));
  EXPECT_THAT(selected_columns(columns, {"r.b", "y"}, "list"), ElementsAre(3, 2));
}

TEST(SelectedColumns, ManyNamesTakeNoQuadraticTime) {
  std::vector<KeyPath> paths;
  std::vector<std::string> names;
  for (int i = 0; i < 150'000; ++i) {
    paths.push_back({"r", std::to_string(i)});
    names.push_back("r." + std::to_string(i));
  }
  // If each name were compared with each column, this would exceed the timeout of the test.
  EXPECT_EQ(selected_columns(columns_at(paths), names, "list").size(), names.size());
}

TEST(SelectedColumns, AFlatColumnTakesPrecedence) {
  const auto columns = columns_at({{"a", "b", "c"}, {"a.b"}});
  EXPECT_THAT(known_columns(columns, {"a.b"}), ElementsAre(1));
  EXPECT_THAT(known_columns(columns, {"a"}), ElementsAre(0));
}

TEST(SelectedColumns, AnUnknownNameIsAnError) {
  const auto select = [] { selected_columns(columns_at({{"price"}}), {"prize"}, "list"); };
  EXPECT_THAT(test::message_of(select, ErrorCode::key_not_found),
              HasSubstr("list: no column \"prize\""));
}

}  // namespace
}  // namespace tenfold
