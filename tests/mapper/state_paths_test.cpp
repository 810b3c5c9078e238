#include "mapper/state_paths.hpp"
#include "support/message_of.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>

namespace tenfold {
namespace {

using testing::HasSubstr;

const std::vector<std::string_view> kPaths = {"", "a", "a/b", "m"};
const std::vector<std::int64_t> kTables = {kNoTable, 0, 1, kMapperTable};
const std::vector<std::int64_t> kRows = {0, 1, 2, 0};
const std::vector<std::uint8_t> kLevels = {1, 1, 0, 0};

std::string refusal(const auto& call) {
  return test::message_of(call, ErrorCode::invalid_argument);
}

TEST(StatePaths, AMissingPathGivesTheDefaultOrMapperAboveIt) {
  const StatePaths paths(StatePaths::make(kPaths, kTables, kRows, kLevels));
  const std::vector<std::string_view> wanted = {"a/b", "a/x/y", "a/b/c", "m/x", "x/y"};
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected = {
      {1, 2}, {0, 1}, {0, 1}, {kMapperTable, 0}, {kNoTable, 0}};
  const std::vector<StatePlace> found = paths.find(wanted);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(std::pair(found[i].table, found[i].row), expected[i]) << wanted[i];
  }
}

TEST(StatePaths, RefusesTheRootAndPathsWithAnEmptyComponent) {
  const StatePaths paths(StatePaths::make(kPaths, kTables, kRows, kLevels));
  for (const std::string_view path : {"", "/a", "a/", "a//b"}) {
    EXPECT_THAT(
        refusal([&] { paths.find(std::array{path}); }),
        HasSubstr("state \"" + std::string(path) +
                  "\": expected a path whose components are not empty and do not contain \"/\""));
  }
}

TEST(StatePaths, RefusesColumnsOfDifferentLengths) {
  const std::vector<std::int64_t> three = {0, 1, 2};
  EXPECT_THAT(
      refusal([&] { StatePaths::make(kPaths, kTables, three, kLevels); }),
      HasSubstr("paths: expected a table, a row and a level for each of 4 paths, found 4, 3 "
                "and 4"));
}

TEST(StatePaths, RefusesADuplicatePath) {
  const std::vector<std::string_view> twice = {"", "a", "a", "m"};
  EXPECT_THAT(refusal([&] { StatePaths::make(twice, kTables, kRows, kLevels); }),
              HasSubstr("expected it once, found it twice, at positions 1 and 2"));
}

}  // namespace
}  // namespace tenfold
