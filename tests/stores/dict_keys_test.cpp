#include "stores/dict_keys.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tenfold {
namespace {

TEST(DictKeys, AreTheSameTextOnlyIfEveryByteIs) {
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

}  // namespace
}  // namespace tenfold
