#include <tenfold/value.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tenfold/error.hpp>

#include "core/value/value_json.hpp"
#include "support/message_of.hpp"

namespace tenfold {
namespace {

template <class V>
concept HasGetIf = requires(V&& value) { std::forward<V>(value).template get_if<bool>(); };
static_assert(HasGetIf<Value&> && HasGetIf<const Value&>);
static_assert(!HasGetIf<Value>, "the pointer would point into a temporary");

const std::filesystem::path kData = std::filesystem::path(TENFOLD_TEST_DATA) / "json";

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> split(const std::string& text, char mark) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, mark);) parts.push_back(part);
  return parts;
}

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(c) & 0xFFu);
    text += digits;
  }
  return text;
}

/// Formats an integer or a string as in the second column of golden.tsv. The caller compares floats
/// itself.
std::string column_of(const Value& value) {
  if (const auto* number = value.get_if<std::int64_t>()) return "int " + std::to_string(*number);
  if (const auto* number = value.get_if<Value::BigInt>()) return "int " + number->digits;
  if (const auto* text = value.get_if<std::string>()) return "str " + hex(*text);
  return "other";
}

Value::Object object(std::vector<std::pair<std::string, Value>> members) {
  return Value::Object{std::move(members), false, false};
}

TEST(Value, EveryGoldenDocumentReadsAndWritesAsPythonDoes) {
  const std::vector<std::string> lines = split(bytes_of(kData / "golden.tsv"), '\n');
  ASSERT_GT(lines.size(), 600u);
  for (const std::string& line : lines) {
    const std::vector<std::string> columns = split(line, '\t');
    ASSERT_EQ(columns.size(), 5u) << line;
    const Value value = from_json(columns[0], "golden");
    if (columns[1].starts_with("float ")) {
      const double expected = std::strtod(columns[1].c_str() + 6, nullptr);  // exact: hexadecimal
      ASSERT_TRUE(value.is<double>()) << line;
      EXPECT_EQ(value, Value(expected)) << line;
      EXPECT_EQ(std::signbit(*value.get_if<double>()), std::signbit(expected)) << line;
    } else {
      EXPECT_EQ(column_of(value), columns[1]) << line;
    }
    EXPECT_EQ(to_json(value), columns[2]);
    EXPECT_EQ(to_json(value, codecs::JsonStyle::python_compact), columns[3]);
    const std::string utf8 = to_json(value, codecs::JsonStyle::utf8_compact);
    EXPECT_EQ(columns[4] == "-" ? "-" : utf8, columns[4]);
    EXPECT_EQ(from_json(utf8, "again"), value) << line;
  }
}

TEST(Value, EveryBadDocumentIsRefusedWithItsMessage) {
  std::size_t num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kData)) {
    if (entry.path().filename().string().starts_with("bad-")) ++num_files;
  }
  const std::vector<std::string> messages = split(bytes_of(kData / "expected.txt"), '\n');
  EXPECT_EQ(messages.size(), num_files);
  for (const std::string& message : messages) {
    const std::string name = message.substr(0, message.find(':'));
    try {
      from_json(bytes_of(kData / name), name);
      ADD_FAILURE() << name << " was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt) << name;
      EXPECT_EQ(error.what(), message);
    }
  }
}

TEST(Value, DuplicateKeysAreFoundAmongManyMembers) {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i) text += "\"k" + std::to_string(i) + "\": 0, ";
  EXPECT_EQ(from_json(text + "\"last\": 1}", "x").as<Value::Object>().members.size(), 1001u);
  EXPECT_THROW(from_json(text + "\"k500\": 1}", "x"), Error);
}

TEST(Value, NanEqualsNanAndTypesMustAgree) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Value(nan), Value(-nan));
  EXPECT_EQ(Value(Value::List{{nan}}), Value(Value::List{{nan}}));
  EXPECT_EQ(Value(0.0), Value(-0.0));
  EXPECT_NE(Value(1), Value(1.0));
  EXPECT_NE(Value(1), Value(true));
  EXPECT_NE(Value(), Value(false));
  EXPECT_NE(Value(Value::List{{1}}), Value(Value::Tuple{{1}}));
}

TEST(Value, OrderOfMembersMattersForOrderedDictsOnly) {
  Value::Object ab = object({{"a", 1}, {"b", 2}});
  Value::Object ba = object({{"b", 2}, {"a", 1}});
  EXPECT_EQ(ab, ba);
  EXPECT_NE(ab, object({{"b", 1}, {"a", 2}}));
  EXPECT_NE(ab, object({{"a", 1}}));
  ab.ordered = true;
  EXPECT_NE(ab, ba);
  ba.ordered = true;
  EXPECT_NE(ab, ba);
  EXPECT_EQ(ab, ab);
  Value::Object int_keys = object({{"1", 0}});
  int_keys.int_keys = true;
  EXPECT_NE(int_keys, object({{"1", 0}}));
}

TEST(Value, ComparingDeepValuesTakesLinearTime) {
  const auto deep = [](int bottom) {
    Value value(bottom);
    for (int i = 0; i < 500; ++i) value = object({{"a", std::move(value)}, {"b", 0}});
    return value;
  };
  EXPECT_NE(deep(1), deep(2));
}

TEST(Value, FindReturnsTheMemberOrNull) {
  const Value::Object members = object({{"a", 1}, {"", 2}});
  ASSERT_NE(members.find("a"), nullptr);
  EXPECT_EQ(*members.find("a"), Value(1));
  EXPECT_EQ(*members.find(""), Value(2));
  EXPECT_EQ(members.find("b"), nullptr);
}

TEST(Value, TypeNamesEqualPythonsExceptNull) {
  EXPECT_EQ(Value().type_name(), "null");
  EXPECT_EQ(Value(true).type_name(), "bool");
  EXPECT_EQ(Value(1).type_name(), "int");
  EXPECT_EQ(Value(Value::BigInt{"99999999999999999999"}).type_name(), "int");
  EXPECT_EQ(Value(1.0).type_name(), "float");
  EXPECT_EQ(Value("x").type_name(), "str");
  EXPECT_EQ(Value(Value::List{}).type_name(), "list");
  EXPECT_EQ(Value(Value::Tuple{}).type_name(), "tuple");
  EXPECT_EQ(Value(Value::Object{}).type_name(), "dict");
}

TEST(Value, ATupleIsWrittenAsAnArray) {
  EXPECT_EQ(to_json(Value(Value::Tuple{{1, "a", Value()}})), R"([1, "a", null])");
}

TEST(ValueBuilder, BuildsSeveralValuesSequentially) {
  ValueBuilder builder("x");
  codecs::parse_json("[1, {\"a\": []}]", "x", builder);
  EXPECT_TRUE(builder.done());
  EXPECT_EQ(to_json(builder.take()), R"([1, {"a": []}])");
  EXPECT_FALSE(builder.done());
  codecs::parse_json("2", "x", builder);
  EXPECT_EQ(builder.take(), Value(2));
}

TEST(Value, IsConstructedFromEveryIntegerAndFloat) {
  EXPECT_EQ(Value(7U), Value(7));
  EXPECT_EQ(Value(std::size_t{7}), Value(7));
  EXPECT_EQ(Value(7LL), Value(std::int64_t{7}));
  EXPECT_EQ(Value(std::uint8_t{7}), Value(7));
  EXPECT_EQ(Value(0.5F), Value(0.5));
  EXPECT_EQ(Value(std::numeric_limits<std::uint64_t>::max()),
            Value(Value::BigInt{"18446744073709551615"}));
  EXPECT_TRUE(Value(nullptr).is_null());
  EXPECT_EQ(Value(true), Value(true));
  EXPECT_TRUE(Value("text").is<std::string>());
  static_assert(!std::is_convertible_v<int*, Value>, "a pointer is no bool");
  static_assert(!std::is_convertible_v<char, Value>, "text or number?");
}

std::string refusal_of(const auto& call) {
  return test::message_of(call, ErrorCode::invalid_argument);
}

TEST(Value, ConvertsToTheRequestedType) {
  EXPECT_EQ(Value(3).as<int>(), 3);
  EXPECT_EQ(Value(3).as<double>(), 3.0);
  EXPECT_EQ(Value(0.5).as<float>(), 0.5F);
  EXPECT_TRUE(Value(true).as<bool>());
  EXPECT_EQ(Value("adam").as<std::string>(), "adam");
  EXPECT_EQ(Value(std::numeric_limits<std::uint64_t>::max()).as<std::uint64_t>(),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(Value(std::numeric_limits<std::uint64_t>::max()).as<unsigned long long>(),
            std::numeric_limits<unsigned long long>::max());
  EXPECT_EQ(Value(Value::List{{1, 2.5}}).as<std::vector<double>>(), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(Value(Value::Tuple{{"a", "b"}}).as<std::vector<std::string>>(),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(Value(Value::List{{1}}).as<Value::List>(), Value::List{{1}});

  EXPECT_EQ(refusal_of([] { Value("adam").as<int>("lr"); }),
            "lr: expected an int from -2147483648 to 2147483647, found str \"adam\"");
  EXPECT_EQ(refusal_of([] { Value(300).as<std::uint8_t>(); }),
            "value: expected an int from 0 to 255, found int 300");
  EXPECT_NE(refusal_of([] { Value(-1).as<std::size_t>(); }), "");
  EXPECT_NE(refusal_of([] { Value(1.0).as<int>(); }), "") << "a float is no int";
  EXPECT_NE(refusal_of([] { Value(true).as<int>(); }), "") << "a bool is no int";
  EXPECT_NE(refusal_of([] { Value(1).as<bool>(); }), "");
  EXPECT_NE(refusal_of([] { Value("1").as<double>(); }), "");
  EXPECT_NE(refusal_of([] { Value(Value::List{{1, "a"}}).as<std::vector<int>>(); }), "");
  EXPECT_EQ(refusal_of([] { Value().as<std::string>(); }), "value: expected a str, found null");
  EXPECT_EQ(refusal_of([] { Value(3).as<Value::BigInt>(); }),
            "value: expected an int outside the range of int64, found int 3");
  EXPECT_EQ(refusal_of([] { Value(5).as<Value::Special>(); }),
            "value: expected an extended scalar, such as bytes, found int 5");
  EXPECT_EQ(refusal_of([] { Value("a\xFF").as<bool>("lr"); }),
            "lr: expected a bool, found str \"a\\xff\"");
  EXPECT_EQ(refusal_of([] { Value(Value::List{{"\xFF"}}).as<bool>("lr"); }),
            "lr: expected a bool, found list");
}

TEST(Value, ACounterWithoutItemsIsAnEmptyObject) {
  EXPECT_EQ(to_json(Value(Value::Special{.type = Value::Special::Type::counter})), "{}");
}

TEST(Value, PrintsAsJson) {
  std::ostringstream text;
  text << Value(Value::List{{1, "a"}});
  EXPECT_EQ(text.str(), "[1, \"a\"]");
}

TEST(Value, AsFloatRefusesNumbersThatBecomeInfinite) {
  EXPECT_EQ(
      test::message_of([] { return Value(1e300).as<float>("rate"); }, ErrorCode::invalid_argument),
      "rate: expected a number that fits the floating-point type, found float 1e+300");
  EXPECT_EQ(Value(0.5).as<float>(), 0.5F);
  EXPECT_TRUE(std::isinf(Value(std::numeric_limits<double>::infinity()).as<float>()));
  EXPECT_TRUE(std::isnan(Value(std::numeric_limits<double>::quiet_NaN()).as<float>()));
  EXPECT_EQ(
      test::message_of([] { return Value(std::numeric_limits<std::uint64_t>::max()).as<double>(); },
                       ErrorCode::invalid_argument),
      "value: expected a float, or an int in the range of int64, found int "
      "18446744073709551615");
}

}  // namespace
}  // namespace tenfold
