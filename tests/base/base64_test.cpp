#include "base/base64.hpp"

#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace tenfold::base {
namespace {

using namespace std::string_literals;

TEST(Base64, MatchesRfc4648) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\0\xff\xfe"s), "AP/+");
}

TEST(Base64, RoundTripsEveryByte) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes += static_cast<char>(byte);
    EXPECT_EQ(from_base64(base64(bytes)), bytes);
  }
}

TEST(Base64, RefusesNonCanonicalInput) {
  for (const char* text : {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zm9v\n", "Zm-v"}) {
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace tenfold::base
