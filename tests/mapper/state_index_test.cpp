#include "mapper/state_index.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/error.hpp>

#include "dict/dict_of.hpp"
#include "support/message_of.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold {
namespace {

using test::build_pairs;
using test::message_of;
using test::pairs;
using test::TemporaryFolder;
using test::Words;
using testing::HasSubstr;

TEST(StateIndex, TakesTheKeysOfADictionaryInTheSameRows) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 300);
  const MappedDict dict(folder / "d");
  const MappedDict keys = open_state_index(state_index_of(dict), DictKeyType::string, {});
  EXPECT_EQ(keys.size(), 300);
  EXPECT_EQ(keys.rows(Words(310).keys()), dict.rows(Words(310).keys()));
  EXPECT_TRUE(keys.check().empty());
  EXPECT_TRUE(keys.schema().columns().empty()) << "the index has no values";
}

TEST(StateIndex, TakesIntegerKeys) {
  const TemporaryFolder folder;
  MappedDictBuilder builder(folder / "d", DictKeyType::int64, test::pair_schema(), {},
                            DictValueForm::tensor);
  builder.append({7, -1, 40}, pairs(0, 3));
  builder.commit();
  const TensorDict node = state_index_of(MappedDict(folder / "d"));
  const MappedDict keys = open_state_index(node, DictKeyType::int64, {});
  EXPECT_EQ(keys.rows({40, 8, 7}), (std::vector<std::int64_t>{2, -1, 0}));
  EXPECT_THAT(
      message_of([&] { open_state_index(node, DictKeyType::string, {}); }, ErrorCode::corrupt),
      HasSubstr("entry \"key\": dtype: expected uint8, found int64"));
}

TEST(StateIndex, RefusesADictionaryWithSupersededRows) {
  const TemporaryFolder folder;
  build_pairs(folder / "d", 10);
  MappedDict dict(folder / "d", Mode::write_through);
  dict.assign(Words(1, 7).keys(), pairs(700, 1));
  EXPECT_THAT(message_of([&] { state_index_of(dict); }, ErrorCode::unsupported),
              HasSubstr("keys: expected a dictionary without superseded rows, found rows of values "
                        "that were replaced; compact() removes them"));
  dict.compact();
  EXPECT_EQ(open_state_index(state_index_of(dict), DictKeyType::string, {}).size(), 10);
}

TEST(StateIndex, ANodeWithoutTheExpectedColumnsIsAnErrorOfTheFile) {
  const std::vector<std::int64_t> numbers = {3, 4};
  const TensorDict node =
      make_state_index(std::span<const std::int64_t>(numbers), DictKeyType::int64, {});
  EXPECT_EQ(open_state_index(node, DictKeyType::int64, {}).size(), 2);
  EXPECT_FALSE(node.info().schema.has_value());
  EXPECT_THAT(
      message_of([&] { open_state_index(TensorDict::dict({{"a", 1}}), DictKeyType::int64, {}); },
                 ErrorCode::corrupt),
      HasSubstr("no tensors: expected columns, found none"));
  EXPECT_THAT(
      message_of([&] { open_state_index(node, DictKeyType::int64, {{"row", DType::int64}}); },
                 ErrorCode::corrupt),
      HasSubstr("column \"row\": entry \"row\": the schema names it"));
}

}  // namespace
}  // namespace tenfold
