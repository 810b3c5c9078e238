#include "stores/dict_walk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tenfold/mapped_dict.hpp>

#include "dict_of.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using test::build_pairs;
using test::pairs;
using test::TemporaryFolder;
using test::Words;
using testing::ElementsAre;

constexpr std::int64_t kSize = 3000;

DictWalk walk_of(const MappedDict& dict) {
  const auto handle = dict.handle();
  return {handle->newest(), [handle](const DictKeys& keys) { return handle->find_many(keys); }};
}

/// Calls between(walked keys) before each block, and expects key0, key1, ... each with the value
/// that it has by then.
template <class Between>
void expect_all_in_order(const MappedDict& dict, const Between& between) {
  DictWalk walk = walk_of(dict);
  std::int64_t next = 0;
  while (true) {
    between(next);
    const DictWalk::Block block = walk.next();
    ASSERT_EQ(block.places.size(), block.rows.size());
    if (block.places.empty()) break;
    for (std::size_t i = 0; i < block.places.size(); ++i, ++next) {
      const std::string key = "key" + std::to_string(next);
      ASSERT_EQ(walk.keys().text(block.places[i]), key);
      const std::string_view view = key;
      ASSERT_THAT(dict.rows(std::span(&view, 1)), ElementsAre(block.rows[i]));
      ASSERT_LT(block.rows[i], block.state->keys.num_rows);
    }
  }
  EXPECT_EQ(next, kSize);
}

TEST(DictWalk, GivesKeysThatWereAssignedAtTheirPlaces) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", kSize);
  MappedDict dict(folder / "d", Mode::write_through);
  const auto nothing = [](std::int64_t) {};
  expect_all_in_order(dict, nothing);
  dict.assign(Words(500, 100).keys(), pairs(100, 500));
  expect_all_in_order(dict, nothing);
  dict.assign(Words(900, 0).keys(), pairs(0, 900));
  dict.assign(Words(10, 2990).keys(), pairs(0, 10));
  expect_all_in_order(dict, nothing);
  dict.close();
  expect_all_in_order(MappedDict(folder / "d"), nothing);
}

TEST(DictWalk, GivesEachKeyOnceWhileAnotherHandleAssigns) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", kSize);
  MappedDict writer(folder / "d", Mode::write_through);
  const MappedDict reader(folder / "d");
  writer.assign(Words(2000, 500).keys(), pairs(500, 2000));
  writer.assign(Words(1000, 0).keys(), pairs(0, 1000));
  // All keys, so that rows that were the last ones of theirs become earlier ones.
  expect_all_in_order(reader,
                      [&](std::int64_t) { writer.assign(Words(kSize).keys(), pairs(0, kSize)); });
}

TEST(DictWalk, LeavesOutKeysThatAreAddedMeanwhile) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", kSize);
  MappedDict dict(folder / "d", Mode::write_through);
  dict.assign(Words(1, 5).keys(), pairs(5, 1));
  expect_all_in_order(dict, [&](std::int64_t walked) {
    dict.extend(Words(10, 100'000 + walked).keys(), pairs(0, 10));
  });
  EXPECT_EQ(dict.ordered_rows().size(), static_cast<std::size_t>(dict.size()));
}

}  // namespace
}  // namespace tenfold
