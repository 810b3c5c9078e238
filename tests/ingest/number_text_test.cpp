#include "ingest/number_text.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>

namespace tenfold {
namespace {

/// Appends zero bytes, because the scanner may read some bytes after the end of a number.
std::string padded(const std::string& text) { return text + std::string(kNumberSlackBytes, '\0'); }

std::uint64_t bits_of(const std::string& text) {
  NumberText number;
  const std::string memory = padded(text);
  EXPECT_TRUE(scan_number(memory.c_str(), NumberStyle::json, number)) << text;
  EXPECT_EQ(number.text(), text);
  return std::bit_cast<std::uint64_t>(to_double(number));
}

/// Returns the bits of the double that strtod() returns, which rounds like Python's float().
std::uint64_t expected_bits(const std::string& text) {
  return std::bit_cast<std::uint64_t>(std::strtod(text.c_str(), nullptr));
}

TEST(NumberText, ExponentsMayExceedTheNumberOfDigits) {
  const std::string zeros(200'000, '0');
  for (const std::string& text : {"1" + zeros + "e-300000", "1" + zeros + "e-199999",
                                  "0." + zeros + "1e300000", "-1" + zeros + "e200000"}) {
    EXPECT_EQ(bits_of(text), expected_bits(text)) << text.substr(text.find('e'));
  }
}

TEST(NumberText, IsTheNearestDouble) {
  for (const char* text : {"0",
                           "-0",
                           "0.0",
                           "-0.0",
                           "1",
                           "0.1",
                           "-0.1",
                           "1e22",
                           "1e23",
                           "9007199254740993",
                           "9007199254740992.5",
                           "123456789012345678",
                           "1234567890123456789",
                           "12345678901234567890",
                           "0.000000000000000000000000000000123",
                           "1.7976931348623157e308",
                           "4.9e-324",
                           "2.5e-324",
                           "2.2250738585072011e-308",
                           "179769313486231580793e289",
                           "5e-1",
                           "1E+5",
                           "1e-5",
                           "0.30000000000000004",
                           "100000000000000000000000",
                           "3.141592653589793238462643383279",
                           "0.00000000000000000001234567890123456789",
                           "12345678",
                           "123456789",
                           "1234567.8",
                           "12345678.12345678",
                           "0.12345678",
                           "9.5367431640625e-7",
                           "1125899906842624.125",
                           "1125899906842623.9375",
                           "4503599627370496.5",
                           "4503599627370497.5",
                           "0e-25",
                           "-0e-23",
                           "0.0000000000000000000000000"}) {
    EXPECT_EQ(bits_of(text), expected_bits(text)) << text;
  }
  std::mt19937_64 random(7);
  for (int i = 0; i < 200'000; ++i) {
    char text[64];
    const auto value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    std::snprintf(text, sizeof(text), i % 3 == 0 ? "%.17g" : i % 3 == 1 ? "%.9g" : "%.12e", value);
    ASSERT_EQ(bits_of(text), expected_bits(text)) << text;
  }
  for (int i = 0; i < 100'000; ++i) {
    char text[64];
    const double value = static_cast<double>(random() % 2'000'001) / 1000.0 - 1000.0;
    std::snprintf(text, sizeof(text), "%.*f", static_cast<int>(random() % 18), value);
    ASSERT_EQ(bits_of(text), expected_bits(text)) << text;
  }
}

TEST(NumberText, IsTheNearestDoubleOfQuotientsByPowersOfTen) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 400'000; ++i) {
    const std::uint64_t digits = (random() % 10'000'000'000'000'000'000ULL) >> (random() % 64);
    const std::string text = std::to_string(digits) + "e-" + std::to_string(random() % 30);
    ASSERT_EQ(bits_of(text), expected_bits(text)) << text;
  }
}

TEST(NumberText, RoundsTiesToEven) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100'000; ++i) {
    // An odd number of 54 bits, divided by 2^power, lies halfway between two doubles. The quotient
    // is computed in decimal: the number times 5^power, divided by 10^power.
    const int power = 1 + i % 4;
    std::uint64_t digits = (random() >> 10) | (std::uint64_t{1} << 53) | 1;
    for (int k = 0; k < power; ++k) digits *= 5;
    const std::string text = std::to_string(digits) + "e-" + std::to_string(power);
    ASSERT_EQ(bits_of(text), expected_bits(text)) << text;
  }
}

TEST(NumberText, IsInfiniteOrZeroBeyondTheRange) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(bits_of("1e999"), std::bit_cast<std::uint64_t>(infinity));
  EXPECT_EQ(bits_of("-1e999"), std::bit_cast<std::uint64_t>(-infinity));
  EXPECT_EQ(bits_of("1e99999999999999999999"), std::bit_cast<std::uint64_t>(infinity));
  EXPECT_EQ(bits_of("1e-999"), std::bit_cast<std::uint64_t>(0.0));
  EXPECT_EQ(bits_of("-1e-999"), std::bit_cast<std::uint64_t>(-0.0));
  EXPECT_EQ(bits_of(std::string(400, '9')), std::bit_cast<std::uint64_t>(infinity));
  EXPECT_EQ(bits_of("0." + std::string(400, '0') + "1"), std::bit_cast<std::uint64_t>(0.0));
}

TEST(NumberText, AcceptsTheSyntaxOfItsFormat) {
  NumberText number;
  for (const char* text :
       {"", "-", "+1", ".5", "1.", "1.e5", "01", "-01", "1e", "1e+", "x", "--1"}) {
    const std::string memory = padded(text);
    EXPECT_FALSE(scan_number(memory.c_str(), NumberStyle::json, number)) << text;
  }
  for (const char* text : {"1.", ".5", "-.5", "1.e5"}) {
    const std::string memory = padded(text);
    EXPECT_TRUE(scan_number(memory.c_str(), NumberStyle::csv, number)) << text;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(to_double(number)), expected_bits(text)) << text;
  }
  for (const char* text : {".", "-", "+1", "007", "-.", ".e5", "e5", ""}) {
    const std::string memory = padded(text);
    EXPECT_FALSE(scan_number(memory.c_str(), NumberStyle::csv, number)) << text;
  }
  const std::string memory = padded("12,5");
  ASSERT_TRUE(scan_number(memory.c_str(), NumberStyle::json, number));
  EXPECT_EQ(number.text(), "12");
}

TEST(NumberText, DistinguishesIntegersOf64BitsFromLarger) {
  const auto integer = [](const char* text, std::uint64_t& value) {
    NumberText number;
    const std::string memory = padded(text);
    EXPECT_TRUE(scan_number(memory.c_str(), NumberStyle::json, number));
    EXPECT_TRUE(number.is_integer);
    return to_integer(number, value);
  };
  std::uint64_t value = 0;
  EXPECT_EQ(integer("9223372036854775807", value), IntegerSize::int64);
  EXPECT_EQ(value, 9223372036854775807U);
  EXPECT_EQ(integer("-9223372036854775808", value), IntegerSize::int64);
  EXPECT_EQ(static_cast<std::int64_t>(value), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(integer("-1", value), IntegerSize::int64);
  EXPECT_EQ(static_cast<std::int64_t>(value), -1);
  EXPECT_EQ(integer("9223372036854775808", value), IntegerSize::uint64);
  EXPECT_EQ(integer("18446744073709551615", value), IntegerSize::uint64);
  EXPECT_EQ(value, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(integer("18446744073709551616", value), IntegerSize::huge);
  EXPECT_EQ(integer("-9223372036854775809", value), IntegerSize::huge);
  EXPECT_EQ(integer("99999999999999999999999999", value), IntegerSize::huge);
}

TEST(NumberText, DetectsIntegersThatADoubleRepresents) {
  const auto exact = [](const char* text) {
    NumberText number;
    const std::string memory = padded(text);
    EXPECT_TRUE(scan_number(memory.c_str(), NumberStyle::json, number));
    return is_exact_in_double(number);
  };
  EXPECT_TRUE(exact("0"));
  EXPECT_TRUE(exact("9007199254740992"));
  EXPECT_FALSE(exact("9007199254740993"));
  EXPECT_FALSE(exact("-9007199254740993"));
  EXPECT_TRUE(exact("9007199254740994"));
  EXPECT_TRUE(exact("9223372036854775808"));
  EXPECT_TRUE(exact("18446744073709549568"));
  EXPECT_FALSE(exact("18446744073709551615"));
  EXPECT_FALSE(exact("100000000000000000000000"));
}

}  // namespace
}  // namespace tenfold
