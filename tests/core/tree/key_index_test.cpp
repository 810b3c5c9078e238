#include "core/tree/key_index.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tenfold {
namespace {

struct Keys {
  std::vector<std::string> text;
  KeyIndex index;
  auto key_at() const {
    return [this](std::uint32_t i) -> std::string_view { return text[i]; };
  }
  std::uint32_t add(const std::string& key) {
    text.push_back(key);
    return index.insert(key, static_cast<std::uint32_t>(text.size() - 1), key_at());
  }
};

TEST(KeyIndex, FindsEachOf100000Keys) {
  Keys keys;
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(keys.add("model.layers." + std::to_string(i) + ".weight"), KeyIndex::kNone);
  }
  for (std::uint32_t i = 0; i < keys.text.size(); ++i) {
    ASSERT_EQ(keys.index.find(keys.text[i], keys.key_at()), i);
  }
  for (int i = 100'000; i < 101'000; ++i) {
    ASSERT_EQ(keys.index.find("model.layers." + std::to_string(i) + ".weight", keys.key_at()),
              KeyIndex::kNone);
  }
}

TEST(KeyIndex, ReturnsThePositionOfADuplicate) {
  Keys keys;
  keys.add("a");
  keys.add("b");
  EXPECT_EQ(keys.add("a"), 0U);
  EXPECT_EQ(keys.index.find("a", keys.key_at()), 0U);
}

TEST(KeyIndex, AcceptsTheEmptyKeyAndKeysWithNuls) {
  Keys keys;
  keys.add("");
  keys.add(std::string("a\0b", 3));
  EXPECT_EQ(keys.index.find("", keys.key_at()), 0U);
  EXPECT_EQ(keys.index.find(std::string_view("a\0b", 3), keys.key_at()), 1U);
  EXPECT_EQ(keys.index.find("a", keys.key_at()), KeyIndex::kNone);
}

TEST(KeyIndex, IsEmptyBeforeTheFirstKeyAndAfterClear) {
  Keys keys;
  EXPECT_FALSE(keys.index.built());
  EXPECT_EQ(keys.index.find("a", keys.key_at()), KeyIndex::kNone);
  keys.add("a");
  EXPECT_TRUE(keys.index.built());
  keys.index.clear();
  EXPECT_EQ(keys.index.find("a", keys.key_at()), KeyIndex::kNone);
}

TEST(KeyIndex, KeepsItsKeysOnReserve) {
  Keys keys;
  keys.add("a");
  keys.index.reserve(1000);
  EXPECT_EQ(keys.index.find("a", keys.key_at()), 0U);
}

}  // namespace
}  // namespace tenfold
