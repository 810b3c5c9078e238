#include "codecs/pickle/writer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codecs/pickle/pickle.hpp"

namespace tenfold::codecs {
namespace {

using namespace std::string_literals;

/// Writes a pickle with `write`, and checks what is read back.
template <class Write, class Check>
void round_trip(const Write& write, const Check& check) {
  PickleWriter writer;
  write(writer);
  const std::string bytes = writer.take();
  const PickleGraph graph = read_pickle(bytes, "pickle");
  EXPECT_EQ(graph.size_bytes, bytes.size());
  check(graph, graph.at(graph.root));
}

TEST(PickleWriter, IntegersOf64BitsAreReadBack) {
  std::vector<std::int64_t> values = {0, std::numeric_limits<std::int64_t>::min(),
                                      std::numeric_limits<std::int64_t>::max()};
  for (int bits = 0; bits < 63; ++bits) {
    const std::int64_t power = std::int64_t{1} << bits;
    for (const std::int64_t value : {power, power - 1, -power, -power - 1}) values.push_back(value);
  }
  for (const std::int64_t value : values) {
    round_trip([&](PickleWriter& to) { to.integer(value); },
               [&](const PickleGraph&, const PickleNode& found) {
                 EXPECT_EQ(found.kind, PickleKind::integer);
                 EXPECT_EQ(found.integer, value);
               });
  }
}

TEST(PickleWriter, BigIntegersAreReadBackUpTo255Bytes) {
  std::mt19937 random(3);
  std::vector<std::string> values = {"9223372036854775808", "18446744073709551615",
                                     "340282366920938463463374607431768211456"};
  for (int i = 0; i < 300; ++i) {
    std::string digits(20 + random() % 590, '0');
    for (char& digit : digits) digit = static_cast<char>('0' + random() % 10);
    digits[0] = static_cast<char>('1' + random() % 9);
    values.push_back(digits);
  }
  for (const std::string& digits : values) {
    for (const std::string& value : {digits, "-" + digits}) {
      if (value == "-9223372036854775808") continue;  // it fits 64 bits
      round_trip([&](PickleWriter& to) { EXPECT_TRUE(to.big_integer(value)); },
                 [&](const PickleGraph&, const PickleNode& found) {
                   EXPECT_EQ(found.kind, PickleKind::big_integer);
                   EXPECT_EQ(found.text, value);
                 });
    }
  }
}

TEST(PickleWriter, LargerIntegersAreRefusedAndWriteNothing) {
  // 2^2039 - 1 is the largest integer that fits in 255 bytes in two's complement.
  std::string power = "1";
  const auto twice = [](const std::string& digits) {
    std::string result;
    int carry = 0;
    for (std::size_t i = digits.size(); i-- > 0;) {
      const int value = (digits[i] - '0') * 2 + carry;
      result.insert(result.begin(), static_cast<char>('0' + value % 10));
      carry = value / 10;
    }
    return carry > 0 ? "1" + result : result;
  };
  for (int i = 0; i < 2039; ++i) power = twice(power);
  std::string largest = power;
  ASSERT_NE(largest.back(), '0');
  --largest.back();
  PickleWriter writer;
  const std::size_t before = writer.size_bytes();
  EXPECT_FALSE(writer.big_integer(power));
  EXPECT_FALSE(writer.big_integer(std::string(100'000, '9')));
  EXPECT_EQ(writer.size_bytes(), before);
  EXPECT_TRUE(writer.big_integer(largest));
  EXPECT_TRUE(PickleWriter().big_integer("-" + power));  // -2^2039 fits
}

TEST(PickleWriter, NumbersAndTheirSignsRoundTrip) {
  for (const double value : {0.0, -0.0, 0.1, 1e300, -5e-324, HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    round_trip([&](PickleWriter& to) { to.number(value); },
               [&](const PickleGraph&, const PickleNode& found) {
                 EXPECT_EQ(std::signbit(found.number), std::signbit(value));
                 EXPECT_TRUE(found.number == value || (std::isnan(found.number) && value != value));
               });
  }
}

TEST(PickleWriter, TextIsReadBackWithLoneSurrogates) {
  for (const std::string& value : {""s, "a\0b"s, "\u00e9\U0001f600"s, "\xed\xa0\x80"s}) {
    round_trip([&](PickleWriter& to) { to.text(value); },
               [&](const PickleGraph&, const PickleNode& found) { EXPECT_EQ(found.text, value); });
  }
}

TEST(PickleWriter, ContainersCallsAndMemoizedValuesAreReadBack) {
  const auto write = [](PickleWriter& to) {
    to.begin_list();
    to.begin_tuple();
    to.end_tuple();
    to.begin_dict();
    to.known_text("key");
    to.boolean(true);
    to.end_dict();
    const std::uint32_t dict = to.remember();
    to.push(dict);
    to.begin_ordered_dict();
    to.known_text("key");
    to.none();
    to.end_ordered_dict();
    to.global("torch", "FloatStorage");
    to.persistent();
    to.end_list();
  };
  round_trip(write, [](const PickleGraph& graph, const PickleNode& list) {
    ASSERT_EQ(list.kind, PickleKind::list);
    ASSERT_EQ(list.items.size(), 5U);
    EXPECT_EQ(graph.at(list.items[0]).kind, PickleKind::tuple);
    EXPECT_TRUE(graph.at(list.items[0]).items.empty());
    const PickleNode dict = graph.at(list.items[1]);
    ASSERT_EQ(dict.items.size(), 2U);
    EXPECT_EQ(graph.at(dict.items[0]).text, "key");
    EXPECT_EQ(graph.at(dict.items[1]).integer, 1);
    EXPECT_EQ(list.items[1], list.items[2]);  // the same object
    const PickleNode ordered = graph.at(list.items[3]);
    EXPECT_EQ(ordered.kind, PickleKind::reduce);
    EXPECT_EQ(graph.at(ordered.items[0]).name, "OrderedDict");
    ASSERT_EQ(graph.changes.size(), 1U);
    EXPECT_EQ(graph.changes[0].key, dict.items[0]);  // the same string
    EXPECT_EQ(graph.at(graph.at(list.items[4]).items[0]).text, "torch");
  });
}

TEST(PickleWriter, MemoHoldsMoreThan256Values) {
  const auto write = [](PickleWriter& to) {
    to.begin_list();
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 300; ++i) to.known_text("text " + std::to_string(i));
    }
    to.end_list();
  };
  round_trip(write, [](const PickleGraph& graph, const PickleNode& list) {
    ASSERT_EQ(list.items.size(), 600U);
    for (std::size_t i = 0; i < 300; ++i) {
      EXPECT_EQ(list.items[i], list.items[i + 300]);
      EXPECT_EQ(graph.at(list.items[i]).text, "text " + std::to_string(i));
    }
  });
}

}  // namespace
}  // namespace tenfold::codecs
