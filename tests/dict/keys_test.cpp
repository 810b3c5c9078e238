#include "dict/keys.hpp"

#include "dict/repeated_keys.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace tenfold {
namespace {

TEST(DictKeys, StringsAreEqualOnlyIfEveryByteIs) {
  for (std::size_t size = 0; size < 70; ++size) {
    std::string key;
    for (std::size_t i = 0; i < size; ++i) key += static_cast<char>('a' + i % 26);
    const std::string same = key;
    EXPECT_TRUE(is_same_text(key, same)) << size;
    EXPECT_FALSE(is_same_text(key, key + "a")) << size;
    for (std::size_t i = 0; i < size; ++i) {
      std::string other = key;
      other[i] = static_cast<char>(other[i] ^ 1);
      EXPECT_FALSE(is_same_text(key, other)) << size << " at " << i;
    }
  }
}

TEST(DictKeys, EarlierDuplicatesAreMarked) {
  std::mt19937 random(0);
  for (const std::int64_t different : {1, 3, 50, 100'000}) {
    std::vector<std::int64_t> keys(1000);
    for (std::int64_t& key : keys) key = static_cast<std::int64_t>(random()) % different;
    std::map<std::int64_t, std::size_t> last;
    for (std::size_t i = 0; i < keys.size(); ++i) last[keys[i]] = i;
    const std::vector<bool> again = is_repeated(std::span<const std::int64_t>(keys), 7);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSERT_EQ(again[i], last[keys[i]] != i) << i << " of " << different;
    }
  }
}

}  // namespace
}  // namespace tenfold
