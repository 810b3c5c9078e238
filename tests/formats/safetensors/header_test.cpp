#include "formats/safetensors/header.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tenfold/error.hpp>

namespace tenfold::test {

using namespace detail::formats;
namespace {

/// The result of parsing a header as text, or the error message without the position at its end.
std::string parsed(const std::string& text, std::uint64_t data_bytes) {
  try {
    const safetensors::Header header = safetensors::parse_header(text, data_bytes, "f");
    std::string result;
    for (const auto& [key, value] : header.metadata) result += key + "=" + value + ";";
    for (std::size_t i = 0; i < header.entries.size(); ++i) {
      const auto& entry = header.entries[i];
      result += std::string(header.name(i)) + ":" + to_string(entry.dtype) + "[";
      for (const auto length : header.shape(i)) result += std::to_string(length) + ",";
      result += "]" + std::to_string(entry.begin) + "-" + std::to_string(entry.end) + ";";
      EXPECT_EQ(header.find(header.name(i)), i);
    }
    return result;
  } catch (const Error& error) {
    std::string message = error.what();
    return message.substr(0, message.find(" at byte "));
  }
}

TEST(SafetensorsHeader, TheFastParserAndTheGeneralOneAgree) {
  const std::string w = "\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]";
  const std::vector<std::string> bodies = {
      "\"w\":{" + w + "}}",
      "\"__metadata__\":{\"a\":\"}\\\"{\",\"b\":\"\"},\"w\":{" + w + "}}",
      "\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"},\"w\":{" + w + "}}",
      "\"__metadata__\":{\"a\":{}},\"w\":{" + w + "}}",
      "\"__metadata__\":{},\"__metadata__\":{" + w + "}}",
      "\"w\":{" + w + "},\"__metadata__\":{\"a\":\"1\"}}",
      "\"w\":{" + w + "},\"w\":{" + w + "}}",
      "\"w\":{" + w + "},}",
      "\"w\":{" + w + "}",
      "\"w\":{" + w + "}}x",
      "\"w\":{" + w + "}} \n",
      "\"\\u0077\":{" + w + "}}",
      "\"\xC3\xA9\":{" + w + "}}",
      "\"a\tb\":{" + w + "}}",
      "\"w\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}",
      "\"w\":{\"dtype\":\"U8\",\"shape\":[08],\"data_offsets\":[0,8]}}",
      "\"w\":{\"dtype\":\"U8\",\"shape\":[8,],\"data_offsets\":[0,8]}}",
      "\"w\":{\"dtype\":\"U8\",\"shape\":[-8],\"data_offsets\":[0,8]}}",
      "\"w\":{\"dtype\":\"U8\",\"shape\":[8.0],\"data_offsets\":[0,8]}}",
      "\"w\":{\"dtype\":\"U8\",\"shape\":[9999999999999999999],\"data_offsets\":[0,8]}}",
      "\"w\":{\"dtype\":\"F4\",\"shape\":[16],\"data_offsets\":[0,8]}}",
      "\"w\":{\"dtype\":\"F9\",\"shape\":[16],\"data_offsets\":[0,8]}}",
  };
  for (const std::string& body : bodies) {
    // A header with a space is left to the general parser, so this compares the two parsers.
    EXPECT_EQ(parsed("{" + body, 8), parsed("{ " + body, 8)) << body;
  }
  EXPECT_EQ(parsed("{" + bodies[1], 8), "a=}\"{;b=;w:float32[2,]0-8;");
}

}  // namespace
}  // namespace tenfold::test
