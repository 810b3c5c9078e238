#include "core/tree/typed_keys.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/tensordict.hpp>

namespace tenfold::test {
namespace {

Value tuple(std::vector<Value> items) { return Value::Tuple{std::move(items)}; }

TypedKeys typed(std::vector<Value> keys) {
  TypedKeys made;
  for (Value& key : keys) {
    std::string text = key_text(key);
    made.emplace_back(std::move(text), std::move(key));
  }
  std::sort(made.begin(), made.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return made;
}

TEST(DictKeys, TextEqualsPythonsStr) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<Value, std::string>> texts = {
      {Value(), "None"},
      {true, "True"},
      {false, "False"},
      {-7, "-7"},
      {Value::BigInt{"18446744073709551616"}, "18446744073709551616"},
      {0.5, "0.5"},
      {1.0, "1.0"},
      {1e22, "1e+22"},
      {inf, "inf"},
      {-inf, "-inf"},
      {std::numeric_limits<double>::quiet_NaN(), "nan"},
      {tuple({}), "()"},
      {tuple({1}), "(1,)"},
      {tuple({1, "a'b", Value(), tuple({2.5})}), "(1, 'a\\'b', None, (2.5,))"}};
  for (const auto& [key, text] : texts) {
    EXPECT_TRUE(is_typed_key(key)) << text;
    EXPECT_EQ(key_text(key), text);
  }
}

TEST(DictKeys, StringsListsAndDictsAreNotTypedKeys) {
  EXPECT_FALSE(is_typed_key("a"));
  EXPECT_FALSE(is_typed_key(Value::List{}));
  EXPECT_FALSE(is_typed_key(Value::Object{}));
  EXPECT_FALSE(is_typed_key(tuple({Value::List{}})));
  EXPECT_FALSE(is_typed_key(Value::Special{}));
}

TEST(DictKeys, AreValidIfTheyDifferInPython) {
  EXPECT_FALSE(are_valid(typed({1, 0.5, true}))) << "1 == True";
  EXPECT_TRUE(are_valid(typed({2, 0.5, Value(), true, tuple({1, 2}), tuple({1, 3})})));
  EXPECT_FALSE(are_valid(typed({2, 2.0})));
  EXPECT_FALSE(are_valid(typed({0.0, -0.0})));
  EXPECT_FALSE(are_valid(typed({9007199254740992.0, std::int64_t{9007199254740992}})));
  EXPECT_TRUE(are_valid(typed({9007199254740992.0, std::int64_t{9007199254740993}})));
  EXPECT_FALSE(are_valid(typed({-1e20, Value::BigInt{"-100000000000000000000"}})));
  EXPECT_TRUE(are_valid(typed({1e20, Value::BigInt{"100000000000000000001"}})));
  EXPECT_FALSE(are_valid(typed({tuple({1}), tuple({1.0})})));
  EXPECT_FALSE(are_valid({{"2", 2}, {"1", 1}})) << "not sorted";
  EXPECT_FALSE(are_valid({{"one", 1}}));
  EXPECT_FALSE(are_valid({{"a", "a"}}));
}

TEST(DictKeys, WholeFloatsEqualIntegers) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(int_key(-0.0), Value(0));
  EXPECT_EQ(int_key(-9223372036854775808.0), Value(std::numeric_limits<std::int64_t>::min()));
  EXPECT_EQ(int_key(9223372036854775808.0), Value(Value::BigInt{"9223372036854775808"}));
  EXPECT_EQ(int_key(1e23), Value(Value::BigInt{"99999999999999991611392"}));
  for (const double number : {0.5, inf, -inf, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE(int_key(number).has_value()) << number;
  }
}

TEST(DictKeys, AreFoundByTheirString) {
  const TypedKeys keys = typed({1, 0.5, Value()});
  EXPECT_EQ(*find_typed_key(keys, "None"), Value());
  EXPECT_EQ(*find_typed_key(keys, "1"), Value(1));
  EXPECT_EQ(find_typed_key(keys, "2"), nullptr);
  EXPECT_TRUE(are_all_among(keys, std::vector<std::string>{"x", "None", "0.5", "1"}));
  EXPECT_FALSE(are_all_among(keys, std::vector<std::string>{"x", "None", "0.5"}));
}

/// Returns the info of a node with these keys, each given as its string and its value.
NodeInfo info_of(const std::vector<std::pair<std::string, Value>>& keys, bool is_valid = true) {
  KeyTypes collected;
  for (const auto& [text, key] : keys) {
    if (key.is<std::string>()) {
      collected.add_text();
    } else if (key.is<std::int64_t>()) {
      collected.add_int();
    } else {
      collected.add(text, key);
    }
  }
  NodeInfo info;
  const auto text_at = [&](std::size_t i) -> const std::string& { return keys[i].first; };
  EXPECT_EQ(std::move(collected).finish(info, text_at), is_valid);
  return info;
}

TEST(DictKeys, KeysOfOneTypeNeedNoList) {
  EXPECT_FALSE(info_of({}).int_keys);
  EXPECT_TRUE(info_of({{"1", 1}, {"-2", -2}}).int_keys);
  EXPECT_TRUE(info_of({{"1", 1}, {"-2", -2}}).typed_keys.empty());
  EXPECT_FALSE(info_of({{"a", "a"}}).int_keys);
  EXPECT_TRUE(info_of({{"a", "a"}}).typed_keys.empty());
}

TEST(DictKeys, KeysOfSeveralTypesAreListedByTheirStrings) {
  const NodeInfo info = info_of({{"2", 2}, {"a", "a"}, {"None", Value()}, {"1", 1}});
  EXPECT_FALSE(info.int_keys);
  EXPECT_EQ(info.typed_keys, (TypedKeys{{"1", 1}, {"2", 2}, {"None", Value()}}));
  const NodeInfo refused = info_of({{"1", 1}, {"True", true}}, false);
  EXPECT_TRUE(refused.typed_keys.empty());
}

TEST(DictKeys, IntegersHaveTheFormOfPythonsStr) {
  for (const char* text : {"0", "7", "-7", "10", "12345678901234567890"}) {
    EXPECT_TRUE(is_int_key(text)) << text;
  }
  for (const char* text : {"", "-", "-0", "01", "+1", "1.5", "1 ", "a"}) {
    EXPECT_FALSE(is_int_key(text)) << text;
  }
}

TEST(DictKeys, TheFlagForIntegersBecomesAListIfOtherKeysJoinThem) {
  NodeInfo info;
  info.int_keys = true;
  fit_int_keys(info, std::vector<std::string>{"2", "10"});
  EXPECT_TRUE(info.int_keys);
  EXPECT_TRUE(info.typed_keys.empty());
  fit_int_keys(info, std::vector<std::string>{"2", "a", "10"});
  EXPECT_FALSE(info.int_keys);
  EXPECT_EQ(info.typed_keys, (TypedKeys{{"10", 10}, {"2", 2}}));
  EXPECT_TRUE(are_valid(info.typed_keys));
}

}  // namespace
}  // namespace tenfold::test
