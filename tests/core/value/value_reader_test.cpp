#include "core/value/value_reader.hpp"

#include <cstdint>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tenfold/error.hpp>

namespace tenfold {
namespace {

using testing::ElementsAre;

class ValueReaderTest : public testing::Test {
 protected:
  template <class Read>
  std::string message_of(const Read& read) const {
    try {
      read(reader_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt);
      return error.what();
    }
    return "nothing was thrown";
  }

  Value document_ = from_json(R"({"parts": [{"path": "a", "rows": 3, "open": true},
                                            {"path": 4, "rows": -1, "sizes": [1, 2.5]}],
                                  "dtype": "float33", "sizes": [2, 0], "key with space": null})",
                              "d.json");
  base::Where where_ = "d.json";
  ValueReader reader_{document_, where_};
};

TEST_F(ValueReaderTest, ReturnsValuesOfTheirTypes) {
  const auto parts = reader_.at("parts").items();
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].at("path").text(), "a");
  EXPECT_EQ(parts[0].at("rows").integer(), 3);
  EXPECT_TRUE(parts[0].at("open").flag());
  EXPECT_FALSE(parts[1].find("open"));
  EXPECT_EQ(parts[1].at("rows").integer(std::numeric_limits<std::int64_t>::min()), -1);
  EXPECT_THAT(reader_.at("sizes").lengths(), ElementsAre(2, 0));
  EXPECT_EQ(reader_.members().back().first, "key with space");
  EXPECT_TRUE(reader_.members().back().second.value().is_null());
}

TEST_F(ValueReaderTest, NamesThePlaceOfAnInvalidValue) {
  EXPECT_EQ(message_of([](const auto& r) { r.text(); }),
            "d.json: expected a string, found an object");
  EXPECT_EQ(message_of([](const auto& r) { r.at("lost"); }),
            R"(d.json: member "lost": is missing)");
  EXPECT_EQ(message_of([](const auto& r) { r.at("parts").at("x"); }),
            R"(d.json: member "parts": expected an object, found an array)");
  EXPECT_EQ(message_of([](const auto& r) { r.at("parts").items(3); }),
            R"(d.json: member "parts": expected an array of 3 items, found 2)");
  EXPECT_EQ(message_of([](const auto& r) { r.at("parts").items()[1].at("path").text(); }),
            R"(d.json: member "parts[1].path": expected a string, found 4)");
  EXPECT_EQ(message_of([](const auto& r) { r.at("parts").items()[1].at("rows").count(); }),
            R"(d.json: member "parts[1].rows": expected an integer of 0 or more, found -1)");
  EXPECT_EQ(message_of([](const auto& r) { r.at("parts").items()[1].at("sizes").lengths(); }),
            R"(d.json: member "parts[1].sizes[1]": expected an integer of 0 or more, found 2.5)");
  EXPECT_EQ(message_of([](const auto& r) { r.at("dtype").dtype(); }),
            R"(d.json: member "dtype": expected a dtype of torch, found "float33")");
  EXPECT_EQ(message_of([](const auto& r) { r.at("key with space").flag(); }),
            R"(d.json: member "key with space": expected true or false, found null)");
}

TEST_F(ValueReaderTest, RefusesIntegersBeyond64BitsAndShortensThemInMessages) {
  const Value document = from_json(
      "[9223372036854775807, 9223372036854775808, " + std::string(10'000, '7') + "]", "d.json");
  const ValueReader reader(document, where_);
  const auto items = reader.items();
  EXPECT_EQ(items[0].integer(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(message_of([&](const auto&) { items[1].integer(); }),
            R"(d.json: member "[1]": expected a signed integer of 64 bits, )"
            "found 9223372036854775808");
  EXPECT_EQ(message_of([&](const auto&) { reader.lengths(); }),
            R"(d.json: member "[1]": expected a signed integer of 64 bits, )"
            "found 9223372036854775808");
  EXPECT_EQ(message_of([&](const auto&) { items[2].text(); }),
            R"(d.json: member "[2]": expected a string, found )" + std::string(60, '7') + "...");
}

TEST_F(ValueReaderTest, RefusesAVersionAboveTheNewest) {
  const auto rows = reader_.at("parts").items()[0].at("rows");
  EXPECT_NO_THROW(rows.require_version(3));
  try {
    rows.require_version(2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(error.what(),
                 "d.json: member \"parts[0].rows\": expected 2 at most, found 3; use a newer "
                 "version of tenfold");
  }
}

}  // namespace
}  // namespace tenfold
